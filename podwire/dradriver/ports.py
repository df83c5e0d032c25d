"""What the driver's process is handed: an API server, sockets of its own, a trace."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.attach.records import Terms
from podwire.dradriver.claims.allocations import Offered, Order
from podwire.dradriver.parameters.settings import Interface
from podwire.protocols.grpc_methods import Handler, Method
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object


class Api(Protocol):
    """The API server. All raise ApiError and ClientError."""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object: ...

    async def create(self, object_: Object) -> Object: ...

    async def patch(self, kind: Kind, name: str, patch: object, namespace: str = "") -> Object: ...

    async def apply(
        self, object_: Object, *, field_manager: str, subresource: str = "", force: bool = False
    ) -> Object: ...


class Served(Protocol):
    """A socket that is answered on."""

    async def close(self) -> None: ...


class Door(Protocol):
    async def serve(self, path: Path, table: Iterable[Method], handlers: Mapping[str, Handler]) -> Served:
        """Answer calls on a socket. Raises OSError."""
        ...


class Passing(Protocol):
    """A call under way."""

    def answered(self, response: object, outcome: str = "OK") -> None: ...


class Trace(Protocol):
    """Tells whoever watches what the driver does for a pod; each is a call that ends with its block."""

    def works(self, uid: str, what: str) -> AbstractContextManager[Passing]:
        """Does something by itself: prepares, attaches, detaches."""
        ...


Now = Callable[[], float]
"""Monotonic seconds."""


# The other parts of this room, as the process uses them.


class Record(Protocol):
    """A prepared device."""

    @property
    def order(self) -> Order: ...

    @property
    def mac(self) -> str: ...

    @property
    def stage(self) -> str: ...

    @property
    def boot(self) -> str:
        """Of the machine, in which it was prepared."""
        ...

    @property
    def netns(self) -> str:
        """Where its pod is, while it is there; else empty."""
        ...

    @property
    def addresses(self) -> Sequence[Interface] | None: ...

    @property
    def lapse(self) -> str:
        """Why it has not what a lease would give it; else empty."""
        ...

    @property
    def failure(self) -> str:
        """The step that failed the last time, and why."""
        ...


class Attached(Protocol):
    """A device that is in its pod."""

    @property
    def device(self) -> str: ...

    @property
    def share_id(self) -> str: ...

    @property
    def interface(self) -> str: ...

    @property
    def mac(self) -> str: ...

    @property
    def ips(self) -> Sequence[Interface]: ...

    @property
    def lapse(self) -> str: ...


class Attachments(Protocol):
    """Blocks. Raises Refused, AttachFailed, NotGivenBack, OSError."""

    def prepare(self, orders: Sequence[Order], addresses: Any) -> Sequence[Record]: ...

    def settle(self, claim_uid: str) -> None: ...

    def attach(self, pod_uid: str, netns: str) -> Sequence[Attached]: ...

    def detach(self, pod_uid: str, netns: str | None) -> Sequence[Record]: ...

    def unprepare(self, claim_uid: str) -> Sequence[Record]: ...

    def records(self) -> Sequence[Record]: ...

    def of_pod(self, pod_uid: str) -> Sequence[Record]: ...

    def of_claim(self, claim_uid: str) -> Sequence[Record]: ...

    def reconcile(self, live: Mapping[str, str]) -> object: ...

    def is_attached(self, pod_uid: str, netns: str) -> bool: ...

    def attached(self, pod_uid: str) -> Sequence[Attached]: ...

    def follow(self, key: Key, terms: Terms) -> bool: ...

    def attached_file(self, pod_uid: str) -> Path: ...


class Inventory(Protocol):
    """What the node has."""

    def find(self, device: str) -> Offered | None: ...

    def listed(self, device: str) -> dict[str, Any] | None: ...

    def hold(
        self,
        device: str,
        by: str,
        *,
        offered: Offered | None = None,
        listed: dict[str, Any] | None = None,
        mac: str = "",
    ) -> None: ...

    def release(self, device: str, by: str) -> None: ...


class Devices(Protocol):
    """What the node has, and what of it is prepared. Blocks; raises OSError."""

    def find(self, device: str) -> Offered | None: ...

    def attributes(self, device: str) -> Mapping[str, Any]: ...

    def keep(self, orders: Sequence[Order]) -> None: ...

    def settle(self, claim_uid: str) -> None: ...


class Addressing(Protocol):
    """Raises Refused, Exhausted, NoLease, OSError."""

    def reserve(self, orders: Sequence[Order]) -> Any:
        """What claims name, and what pools give. Blocks."""
        ...

    async def lease(self, claim_uid: str) -> None:
        """What DHCP servers give to a claim that is prepared."""
        ...

    async def moved(self, pod_uid: str) -> None:
        """A pod's devices came into it, or home."""
        ...

    def changes(self) -> AsyncIterator[Key]:
        """Whose lease has changed, or may have; without an end, and for one reader."""
        ...

    async def terms(self, key: Key) -> Terms:
        """What is leased at this moment, or why nothing is."""
        ...

    async def leave(self, claim_uid: str) -> None:
        """Give back what was leased."""
        ...

    async def release(self, claim_uid: str) -> None:
        """Give back everything else."""
        ...

    async def sweep(self, records: Sequence[Record]) -> None:
        """Only the claims that these tell of have anything."""
        ...

    async def run(self) -> None:
        """Keep what has to be renewed, until cancelled."""
        ...
