"""Tap points: which calls are recorded and by which side; and the collector that receives the records.

Every component asks for its tap; the environment decides whether there is one. Each call is recorded by one of its two
sides only:

| call | recorded by | if that is not ours |
|---|---|---|
| API requests, writes to the store | the API server | its clients (`PODWIRE_TRACE_API=client`) |
| CRI | the kubelet | the runtime (`PODWIRE_TRACE_CRI=runtime`) |
| CNI plugins, OCI runtime | the runtime | |
| steps inside a component | the component itself (`PodCalls`) | |
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwire.interfaces import Tap
from podwire.linux.fs.trust import make_directory
from podwire.linux.proc import processes
from podwire.trace.participants import CNI_PLUGIN, KUBELET, RUNTIME
from podwire.transports.tapped import Call, Execution, Run, Tapped, tapped_run

if TYPE_CHECKING:
    from podwire.trace.record import Record

VARIABLE = "PODWIRE_TRACE"
"""The collector's socket; without it nothing is recorded."""
NODE = "PODWIRE_NODE"
"""The name of the node, for components that do not know it themselves."""
API_SIDE = "PODWIRE_TRACE_API"
"""`client`: components record their own requests, because the API server is not ours."""
CRI_SIDE = "PODWIRE_TRACE_CRI"
"""`runtime`: the runtime records its callers, because the kubelet is not ours."""
CATCH_UP_SECONDS = 2.0
"""Timeout for a busy collector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """The socket and the directory of a collector."""

    socket: Path
    directory: Path
    limit: int = 32 << 20
    """Bytes of all records together."""
    otlp: str = ""
    """URL of an OpenTelemetry collector that receives spans; empty for none."""

    @classmethod
    def below(cls, prefix: Path, *, otlp: str = "") -> "CollectorOptions":
        return cls(
            socket=prefix / "run/podwire/trace/trace.sock", directory=prefix / "var/lib/podwire/trace", otlp=otlp
        )


async def collect(options: CollectorOptions, ready: Callable[[], object] = lambda: None) -> None:
    """Works until cancelled; calls `ready` once no datagram is lost any more.

    Raises unix_sockets.CannotListen when another collector has the socket.
    """
    from podwire.trace.collector import Collector  # noqa: PLC0415 - other components must not pay for this import
    from podwire.transports.datagrams import Receiver  # noqa: PLC0415 - as above

    async with contextlib.AsyncExitStack() as stack:
        make_directory(options.directory, 0o700)
        receiver = await Receiver.open(options.socket)
        stack.push_async_callback(receiver.close)
        collector = Collector(options.directory, limit=options.limit)
        if options.otlp:
            collector.subscribe(await stack.enter_async_context(_exporter(options.otlp)))
        ready()
        await collector.run(receiver)


@contextlib.asynccontextmanager
async def _exporter(url: str) -> AsyncIterator[Callable[[Sequence["Record"]], None]]:
    """Posts spans to an OpenTelemetry collector while the context is open; gives the function that takes records."""
    from podwire.trace.exporter import Exporter  # noqa: PLC0415 - an HTTP client, only for those who export
    from podwire.trace.otlp import CONTENT_TYPE  # noqa: PLC0415 - as above
    from podwire.transports.http_post import posting  # noqa: PLC0415 - as above

    async with posting(url, CONTENT_TYPE) as post:
        exporter = Exporter(post)
        running = asyncio.create_task(exporter.run(), name="otlp")
        try:
            yield exporter.offer
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


def catch_up(options: CollectorOptions) -> None:
    """Waits until everything recorded so far can be read, if a collector is running."""
    from podwire.transports.datagrams import flush  # noqa: PLC0415 - only readers pay for the import

    flush(options.socket, CATCH_UP_SECONDS)


def tap(component: str, node: str = "", socket: Path | None = None) -> Tap | None:
    """Returns the tap of a component; None when tracing is off. Without node and socket, the environment names them."""
    path = os.environ.get(VARIABLE) if socket is None else str(socket)
    if not path:
        return None
    from podwire.trace.recorder import Recorder  # noqa: PLC0415 - only traced components pay for the import
    from podwire.transports.datagrams import Sender  # noqa: PLC0415 - as above

    return Recorder(Sender(path).send, component, node or os.environ.get(NODE, ""))


def api_tap(component: str, node: str = "") -> Tap | None:
    """Returns the tap of a component for its own requests; None unless clients record them."""
    return tap(component, node) if os.environ.get(API_SIDE) == "client" else None


def cri_tap(node: str = "") -> Tap | None:
    """Returns the runtime's tap for its callers; None unless the runtime records them."""
    return tap(KUBELET, node) if os.environ.get(CRI_SIDE) == "runtime" else None


def cni_run(tap_: Tap | None) -> Run:
    """Returns the function that executes CNI plugins."""
    if tap_ is None:
        return processes.run
    recorded = tapped_run(processes.run, Tapped(tap_, caller=RUNTIME, callee=CNI_PLUGIN), _cni_call)
    checks = CheckFilter()

    def run(argv: Sequence[str], *, env: Mapping[str, str], **rest: Any) -> processes.Finished:
        is_recorded = checks.begin(argv[0], env)
        done = (recorded if is_recorded else processes.run)(argv, env=env, **rest)
        checks.end(argv[0], env, done.code)
        return done

    return run


def oci_run(tap_: Tap | None) -> Run:
    """Returns the function that starts containers: a call of the runtime to itself, by way of the OCI runtime."""
    if tap_ is None:
        return processes.run
    return tapped_run(processes.run, Tapped(tap_, caller=RUNTIME, callee=RUNTIME), _oci_call)


def _cni_call(execution: Execution) -> str:
    return f"{execution.env.get('CNI_COMMAND', '')} {Path(execution.argv[0]).name}"


def _oci_call(execution: Execution) -> str:
    """Returns the command behind the shim's own arguments, such as `crun run`."""
    oci = list(execution.argv[execution.argv.index("--") + 1 :]) if "--" in execution.argv else list(execution.argv)
    verb = next((word for word in ("run", "create", "start", "exec", "delete") if word in oci), "")
    return f"{Path(oci[0]).name} {verb}"


class CheckFilter:
    """Decides which CNI CHECKs are recorded.

    CHECK is called periodically while a pod lives. Only the first CHECK of each plugin is recorded, and those that
    follow a failed one; otherwise a trace would contain little else.
    """

    def __init__(self) -> None:
        self._quiet: dict[str, set[tuple[str, str]]] = {}
        """By container: the plugins and interfaces whose last CHECK succeeded."""

    def begin(self, plugin: str, env: Mapping[str, str]) -> bool:
        """Whether the call is recorded; calls of other verbs always are."""
        container = env.get("CNI_CONTAINERID", "")
        match env.get("CNI_COMMAND"):
            case "CHECK":
                return (plugin, env.get("CNI_IFNAME", "")) not in self._quiet.get(container, ())
            case "ADD" | "DEL":
                self._quiet.pop(container, None)
        return True

    def end(self, plugin: str, env: Mapping[str, str], code: int) -> None:
        if env.get("CNI_COMMAND") != "CHECK":
            return
        quiet = self._quiet.setdefault(env.get("CNI_CONTAINERID", ""), set())
        (quiet.discard if code else quiet.add)((plugin, env.get("CNI_IFNAME", "")))


class PodCalls:
    """Records calls of a component for a pod that only the component knows."""

    def __init__(self, participant: str, node: str, socket: Path | None = None) -> None:
        self._participant, self._tap = participant, tap(participant, node, socket)

    @contextlib.contextmanager
    def call(self, uid: str, method: str, callee: str = "") -> Iterator[Call]:
        """Records a call to a participant; without one, a call of the component to itself."""
        from podwire.trace.record import pod_id  # noqa: PLC0415 - only traced components pay for the import

        tap_, pod = self._tap, pod_id(uid)
        about_pod: Tap | None = None if tap_ is None else lambda hop: tap_(replace(hop, pod=pod))
        with Tapped(about_pod, caller=self._participant, callee=callee or self._participant).call(method, None) as call:
            yield call
