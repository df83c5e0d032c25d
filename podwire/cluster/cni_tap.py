"""Tap point inside the CNI daemon: records how a plugin calls its IPAM, and what it does itself."""

from collections.abc import Callable
from typing import Any

from podwire.cluster.tracing import CheckFilter
from podwire.cniplugins.ipam_delegate import STEP
from podwire.cniplugins.skeleton import TIMINGS, Streams, answer
from podwire.interfaces import Tap
from podwire.linux.proc.stopwatch import Stopwatch
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.values import loaded
from podwire.trace.participants import CNI_PLUGIN, IPAM
from podwire.transports.tapped import Call, Execution, Tapped

OWN_WORK = {"ADD": "configure pod networking", "CHECK": "check pod networking", "DEL": "clean up pod networking"}


def tapped_answer(tap: Tap | None) -> Callable[[str, Streams], int]:
    """Returns the function that answers plugins. A plugin without an IPAM has no inner calls to record."""
    if tap is None:
        return answer

    checks = CheckFilter()

    def answer_recorded(name: str, streams: Streams) -> int:
        environ = streams.environ
        verb = environ.get("CNI_COMMAND", "")
        is_recorded = checks.begin(name, environ) and verb in OWN_WORK and TIMINGS not in environ
        kind = _ipam_type(streams) if is_recorded else ""
        if kind:
            with _PluginTap(tap, verb, kind, streams) as plugin:
                code = answer(name, streams)
                plugin.answered(code)
        else:
            code = answer(name, streams)
        checks.end(name, environ, code)
        return code

    return answer_recorded


class _PluginTap(Stopwatch):
    """Listens to the plugin's steps: the call to the IPAM, and the plugin's own work.

    Own work is recorded before the IPAM call of a DEL and after that of an ADD or CHECK. A second IPAM call is the undo
    of a failed ADD, and recorded as DEL.
    """

    def __init__(self, tap: Tap, verb: str, kind: str, streams: Streams) -> None:
        super().__init__()
        self._verb, self._kind = verb, kind
        self._ipam = Tapped(tap, caller=CNI_PLUGIN, callee=IPAM)
        self._own = Tapped(tap, caller=CNI_PLUGIN, callee=CNI_PLUGIN)
        self._env = {name: value for name, value in streams.environ.items() if name.startswith("CNI_")}
        self._call: Call | None = None
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
        if self._call is not None and code:
            self._call.answered(None, f"exit {code}")
        self._close(None)

    def _open(self, tapped: Tapped, method: str) -> None:
        self._call = tapped.call(method, Execution((self._kind,), self._env, b""))
        self._call.__enter__()

    def _close(self, error: BaseException | None) -> None:
        if self._call is not None:
            self._call.__exit__(type(error) if error else None, error, None)
            self._call = None


def _ipam_type(streams: Streams) -> str:
    """Returns the type of the IPAM plugin; empty for a bad configuration, which the plugin itself reports."""
    try:
        config: Any = loaded(streams.read(), "configuration")
        kind = config["ipam"]["type"]
    except (CniError, KeyError, TypeError):
        return ""
    return kind if isinstance(kind, str) else ""
