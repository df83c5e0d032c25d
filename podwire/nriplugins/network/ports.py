"""Interfaces that the network plugin is handed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from podwire.protocols.k8sapi.client_side import EVERYWHERE, Informer, PatchType, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object


class Api(Protocol):
    """The API server."""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object: ...

    async def create(self, object_: Object) -> Object: ...

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

    def informer(self, kind: Kind, scope: Scope = EVERYWHERE) -> Informer: ...


class Passing(Protocol):
    """A span that has begun."""

    def answered(self, response: object, outcome: str = "OK") -> None: ...


class Trace(Protocol):
    """Traces what the plugin does for a pod; each span ends with its block."""

    def reads(self, uid: str, path: str) -> AbstractContextManager[Passing]:
        """A request to the API server."""
        ...

    def configures(self, uid: str, what: str) -> AbstractContextManager[Passing]:
        """An action of the plugin: a read from the cache, applying routes, policies, mesh."""
        ...


Now = Callable[[], float]
"""Monotonic seconds."""
