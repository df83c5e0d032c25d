"""Which joint is tapped with what, and the collector that hears it.

Every participant asks `tap` for its own; whether there is one is the environment's to say. Each call is told by one of
its two sides only: the API server's and the store's by the API server, the runtime's by the kubelet (or by the runtime
itself when its caller is a stranger), programs by the runtime.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.linux import processes
from podwire.protocols.storage import Item, Page, Watch
from podwire.seams import Tap
from podwire.store import AnyStore
from podwire.trace.participants import API_SERVER, CNI_PLUGIN, KUBELET, RUNTIME, STORE
from podwire.transports.tapped import Execution, Run, Stored, Tapped, watched_run

VARIABLE = "PODWIRE_TRACE"
"""The collector's socket; without it nobody is watched."""
NODE = "PODWIRE_NODE"
"""The name of the node on which a participant works, for those that do not know it themselves."""
CRI_SIDE = "PODWIRE_TRACE_CRI"
"""`runtime`: the runtime tells who calls it, because the kubelet is a stranger that does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """Where a collector listens and keeps what it hears."""

    socket: Path
    directory: Path
    limit: int = 32 << 20
    """Bytes of all records together."""
    keep_secrets: bool = False
    """For `podwire trace --raw`; else nobody ever writes them down."""

    @classmethod
    def below(cls, prefix: Path) -> "CollectorOptions":
        return cls(socket=prefix / "run/podwire/trace.sock", directory=prefix / "var/lib/podwire/trace")


async def collect(options: CollectorOptions, ready: Callable[[], object] = lambda: None) -> None:
    """Work until cancelled; `ready` is called once nothing is lost any more.

    Raises unix.CannotListen when another collector has the socket.
    """
    from podwire.trace.collector import Collector  # noqa: PLC0415 - the others must not pay for what it knows
    from podwire.transports.datagrams import Receiver  # noqa: PLC0415 - as above

    receiver = await Receiver.open(options.socket)
    try:
        ready()
        await Collector(options.directory, limit=options.limit, keep_secrets=options.keep_secrets).run(receiver)
    finally:
        await receiver.close()


def tap(component: str, node: str = "") -> Tap | None:
    """A participant's tap; None when nobody listens. A node that is not named is the environment's."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    from podwire.trace.recorder import Recorder  # noqa: PLC0415 - only who is watched pays for the import
    from podwire.transports.datagrams import Sender  # noqa: PLC0415 - as above

    return Recorder(Sender(path).send, component, node or os.environ.get(NODE, ""))


def cri_tap(node: str = "") -> Tap | None:
    """The runtime's tap for its own callers; None unless it is the side that tells."""
    return tap(KUBELET, node) if os.environ.get(CRI_SIDE) == "runtime" else None


def watched_store(store: AnyStore, tap_: Tap | None) -> AnyStore:
    """The store itself without a tap; with one, a store whose writes are told."""
    return store if tap_ is None else _WatchedStore(store, Tapped(tap_, caller=API_SERVER, callee=STORE))


def cni_run(tap_: Tap | None) -> Run:
    """How CNI plugins are run."""
    if tap_ is None:
        return processes.run
    return watched_run(processes.run, Tapped(tap_, caller=RUNTIME, callee=CNI_PLUGIN), _cni_call)


def oci_run(tap_: Tap | None) -> Run:
    """How containers are started: the runtime does it itself, with the OCI runtime's help."""
    if tap_ is None:
        return processes.run
    return watched_run(processes.run, Tapped(tap_, caller=RUNTIME, callee=RUNTIME), _oci_call)


def _cni_call(execution: Execution) -> str:
    return f"{execution.env.get('CNI_COMMAND', '')} {Path(execution.argv[0]).name}"


def _oci_call(execution: Execution) -> str:
    """What stands behind the shim's own arguments: `crun run`."""
    oci = list(execution.argv[execution.argv.index("--") + 1 :]) if "--" in execution.argv else list(execution.argv)
    verb = next((each for each in ("run", "create", "start", "exec", "delete") if each in oci), "")
    return f"{Path(oci[0]).name} {verb}"


class _WatchedStore:
    """Reads and watches go straight through; they are the API server's own business."""

    def __init__(self, store: AnyStore, tapped: Tapped) -> None:
        self._store = store
        self._tapped = tapped

    @property
    def revision(self) -> int:
        return self._store.revision

    @property
    def failure(self) -> str:
        return self._store.failure

    async def get(self, key: str) -> Item | None:
        return await self._store.get(key)

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        return await self._store.list(prefix, at=at, after=after, limit=limit)

    async def create(self, key: str, value: bytes) -> Item:
        with self._tapped.call(f"create {key}", Stored(value)):
            return await self._store.create(key, value)

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        with self._tapped.call(f"update {key}", Stored(value)):
            return await self._store.update(key, value, expected=expected)

    async def delete(self, key: str, *, expected: int) -> int:
        with self._tapped.call(f"delete {key}", Stored()):
            return await self._store.delete(key, expected=expected)

    def watch(self, prefix: str, *, after: int) -> Watch:
        return self._store.watch(prefix, after=after)

    async def compact(self, revision: int) -> None:
        await self._store.compact(revision)

    async def close(self) -> None:
        await self._store.close()
