"""What CNI plugins do inside a call, as a trace tells it: how they ask their IPAM, and what they do themselves."""

from collections.abc import Callable
from typing import Any

from podwire.cluster.told_checks import CheckFilter
from podwire.cniplugins.delegate import STEP
from podwire.cniplugins.skeleton import TIMINGS, Streams, answer
from podwire.interfaces import Tap
from podwire.linux.proc.stopwatch import Stopwatch
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.values import loaded
from podwire.trace.participants import CNI_PLUGIN, IPAM
from podwire.transports.tapped import Call, Execution, Tapped

OWN_WORK = {"ADD": "configure pod networking", "CHECK": "check pod networking", "DEL": "clean up pod networking"}


def watched(tap: Tap | None) -> Callable[[str, Streams], int]:
    """How the daemon answers. Plugins without an IPAM have nothing to tell that their call does not."""
    if tap is None:
        return answer

    told = CheckFilter()

    def watched_answer(name: str, streams: Streams) -> int:
        environ = streams.environ
        verb = environ.get("CNI_COMMAND", "")
        loudly = told.begun(name, environ) and verb in OWN_WORK and TIMINGS not in environ
        kind = _ipam_type(streams) if loudly else ""
        if kind:
            with _Joints(tap, verb, kind, streams) as joints:
                code = answer(name, streams)
                joints.answered(code)
        else:
            code = answer(name, streams)
        told.ended(name, environ, code)
        return code

    return watched_answer


class _Joints(Stopwatch):
    """Hears when the plugin's thread goes to the IPAM and comes back. What it does before counts as its own work when
    it gives back, what it does after that when it makes. Whoever goes there twice undoes what he began."""

    def __init__(self, tap: Tap, verb: str, kind: str, streams: Streams) -> None:
        super().__init__()
        self._verb, self._kind = verb, kind
        self._ipam = Tapped(tap, caller=CNI_PLUGIN, callee=IPAM)
        self._own = Tapped(tap, caller=CNI_PLUGIN, callee=CNI_PLUGIN)
        self._env = {name: value for name, value in streams.environ.items() if name.startswith("CNI_")}
        self._passing: Call | None = None
        self._asked = False
        if verb == "DEL":
            self._open(self._own, OWN_WORK[verb])

    def begin(self, name: str) -> str:
        if name == STEP:
            if self._asked:
                self._verb = "DEL"
            self._asked = True
            self._close(None)
            self._open(self._ipam, f"{self._verb} {self._kind}")
        return super().begin(name)

    def end(self, name: str, before: str, error: BaseException | None) -> None:
        super().end(name, before, error)
        if name == STEP:
            self._close(error)
            if error is None and self._verb != "DEL":
                self._open(self._own, OWN_WORK[self._verb])

    def answered(self, code: int) -> None:
        if self._passing is not None and code:
            self._passing.answered(None, f"exit {code}")
        self._close(None)

    def _open(self, tapped: Tapped, method: str) -> None:
        self._passing = tapped.call(method, Execution((self._kind,), self._env, b""))
        self._passing.__enter__()

    def _close(self, error: BaseException | None) -> None:
        if self._passing is not None:
            self._passing.__exit__(type(error) if error else None, error, None)
            self._passing = None


def _ipam_type(streams: Streams) -> str:
    """As far as it can be told: what is wrong with a configuration, the plugin says."""
    try:
        config: Any = loaded(streams.read(), "configuration")
        kind = config["ipam"]["type"]
    except (CniError, KeyError, TypeError):
        return ""
    return kind if isinstance(kind, str) else ""
