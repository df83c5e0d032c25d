"""What the scheduler needs from the API, in its own words."""

from typing import Any, Protocol

from podwire.protocols.k8sapi.client_side import EVERYWHERE, Informer, PatchType, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object


class Api(Protocol):
    """Verbs on objects; the API client is one. Refusals are ApiErrors, no answer a ClientError."""

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

    async def bind(self, name: str, namespace: str, node: str, *, uid: str = "") -> None: ...

    def informer(self, kind: Kind, scope: Scope = EVERYWHERE) -> Informer: ...
