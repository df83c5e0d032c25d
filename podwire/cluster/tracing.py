"""Which joint is tapped with what, and the collector that hears it.

Every participant asks `tap` for its own; whether there is one is the environment's to say. Each call is told by one of
its two sides only: requests and the store's writes by the API server (its clients, when it is a stranger), CRI by the
kubelet (the runtime, when that is a stranger), programs by the runtime.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.cluster.told_checks import CheckFilter
from podwire.interfaces import Tap
from podwire.linux.proc import processes
from podwire.trace.participants import CNI_PLUGIN, KUBELET, RUNTIME
from podwire.transports.tapped import Execution, Run, Tapped, tapped_run

VARIABLE = "PODWIRE_TRACE"
"""The collector's socket; without it nobody is watched."""
NODE = "PODWIRE_NODE"
"""The name of the node on which a participant works, for those that do not know it themselves."""
API_SIDE = "PODWIRE_TRACE_API"
"""`client`: participants tell whom they call, because the API server is a stranger that does not."""
CRI_SIDE = "PODWIRE_TRACE_CRI"
"""`runtime`: the runtime tells who calls it, because the kubelet is a stranger that does not."""
PATIENCE = 2.0
"""Seconds for a collector that is busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """Where a collector listens and keeps what it hears."""

    socket: Path
    directory: Path
    limit: int = 32 << 20
    """Bytes of all records together."""
    keep_secrets: bool = False
    """For `podwire trace --raw`; else nobody ever writes them down."""
    otlp: str = ""
    """Where spans are posted to, as OpenTelemetry's collectors want them; empty for nowhere."""

    @classmethod
    def below(cls, prefix: Path, *, otlp: str = "") -> "CollectorOptions":
        return cls(socket=prefix / "run/podwire/trace.sock", directory=prefix / "var/lib/podwire/trace", otlp=otlp)


async def collect(options: CollectorOptions, ready: Callable[[], object] = lambda: None) -> None:
    """Work until cancelled; `ready` is called once nothing is lost any more.

    Raises unix.CannotListen when another collector has the socket.
    """
    from podwire.trace.collector import Collector  # noqa: PLC0415 - the others must not pay for what it knows
    from podwire.transports.datagrams import Receiver  # noqa: PLC0415 - as above

    async with contextlib.AsyncExitStack() as stack:
        receiver = await Receiver.open(options.socket)
        stack.push_async_callback(receiver.close)
        collector = Collector(options.directory, limit=options.limit, keep_secrets=options.keep_secrets)
        if options.otlp:
            from podwire.cluster.exporting import exported  # noqa: PLC0415 - a client of HTTP, for those who want one

            collector.subscribe(await stack.enter_async_context(exported(options.otlp)))
        ready()
        await collector.run(receiver)


def catch_up(options: CollectorOptions) -> None:
    """What has happened so far can be read, if a collector is there that writes it down."""
    from podwire.transports.datagrams import flush  # noqa: PLC0415 - only who reads pays for the import

    flush(options.socket, PATIENCE)


def tap(component: str, node: str = "") -> Tap | None:
    """A participant's tap; None when nobody listens. A node that is not named is the environment's."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    from podwire.trace.recorder import Recorder  # noqa: PLC0415 - only who is watched pays for the import
    from podwire.transports.datagrams import Sender  # noqa: PLC0415 - as above

    return Recorder(Sender(path).send, component, node or os.environ.get(NODE, ""))


def api_tap(component: str, node: str = "") -> Tap | None:
    """A participant's tap for its own requests; None unless clients are the side that tells."""
    return tap(component, node) if os.environ.get(API_SIDE) == "client" else None


def cri_tap(node: str = "") -> Tap | None:
    """The runtime's tap for its own callers; None unless it is the side that tells."""
    return tap(KUBELET, node) if os.environ.get(CRI_SIDE) == "runtime" else None


def cni_run(tap_: Tap | None) -> Run:
    """How CNI plugins are run."""
    if tap_ is None:
        return processes.run
    watched = tapped_run(processes.run, Tapped(tap_, caller=RUNTIME, callee=CNI_PLUGIN), _cni_call)
    told = CheckFilter()

    def run(argv: Sequence[str], *, env: Mapping[str, str], **rest: Any) -> processes.Finished:
        loudly = told.begun(argv[0], env)
        done = (watched if loudly else processes.run)(argv, env=env, **rest)
        told.ended(argv[0], env, done.code)
        return done

    return run


def oci_run(tap_: Tap | None) -> Run:
    """How containers are started: the runtime does it itself, with the OCI runtime's help."""
    if tap_ is None:
        return processes.run
    return tapped_run(processes.run, Tapped(tap_, caller=RUNTIME, callee=RUNTIME), _oci_call)


def _cni_call(execution: Execution) -> str:
    return f"{execution.env.get('CNI_COMMAND', '')} {Path(execution.argv[0]).name}"


def _oci_call(execution: Execution) -> str:
    """What stands behind the shim's own arguments: `crun run`."""
    oci = list(execution.argv[execution.argv.index("--") + 1 :]) if "--" in execution.argv else list(execution.argv)
    verb = next((word for word in ("run", "create", "start", "exec", "delete") if word in oci), "")
    return f"{Path(oci[0]).name} {verb}"
