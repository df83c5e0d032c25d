"""What the controllers need from the API, in their own words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from podwire.controllers.metadata import Seen
from podwire.protocols.k8sapi.client_side import EVERYWHERE, Informer, Listing, PatchType, Propagation, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object


class Api(Protocol):
    """Verbs on objects; the API client is one. Refusals are ApiErrors, no answer a ClientError."""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object: ...

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing: ...

    async def create(self, object_: Object) -> Object: ...

    async def replace(self, object_: Object, *, subresource: str = "") -> Object: ...

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type_: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Object: ...

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> Object: ...

    async def delete_collection(self, kind: Kind, scope: Scope) -> None: ...

    async def discover(self) -> Sequence[Kind]: ...


class Informing(Protocol):
    """What the feed over HTTP needs besides."""

    async def discover(self) -> Sequence[Kind]: ...

    def informer(self, kind: Kind, scope: Scope = EVERYWHERE) -> Informer: ...


@dataclass(frozen=True, slots=True)
class Present:
    """An object is there, new or changed."""

    seen: Seen


@dataclass(frozen=True, slots=True)
class Absent:
    """An object is gone; this is the last that was seen of it."""

    seen: Seen
    vanished: bool = False
    """Nobody saw it end: its kind is not served any more, so it cannot be looked at."""


@dataclass(frozen=True, slots=True)
class Complete:
    """Everything that was there has been told: from now on, what was not told is not there.

    Told again when kinds have come that were not followed before.
    """


Tidings = Present | Absent | Complete
Tell = Callable[[Tidings], None]


class Feed(Protocol):
    """Every object of every kind, now and as it changes, metadata only; one subscription for all controllers.

    Beside the API server it is one watch on the whole store; over HTTP, `WatchedFeed`.
    """

    async def follow(self, tell: Tell) -> None:
        """Tell everything, in order for each object, until cancelled."""
        ...
