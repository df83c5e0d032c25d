"""What the kubelet needs from others, in its own words."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from podwire.kubelet.observed import Observed
from podwire.objects.pods import Pod
from podwire.protocols.grpc_methods import ServerStream, Unary
from podwire.protocols.k8sapi.client_side import EVERYWHERE, Informer, Listing, PatchType, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

Asked = TypeVar("Asked", bound=Message)
Answered = TypeVar("Answered", bound=Message)


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
        self, kind: Kind, name: str, namespace: str = "", *, grace_seconds: int | None = None, uid: str = ""
    ) -> Object: ...

    async def token(self, name: str, namespace: str, spec: Mapping[str, Any]) -> Object: ...

    def informer(self, kind: Kind, scope: Scope = EVERYWHERE) -> Informer: ...


class Cri(Protocol):
    """Calls of the Container Runtime Interface; `protocols/cri/methods.py` has them all. Refusals are RpcErrors."""

    async def call(
        self,
        method: Unary[Asked, Answered],
        request: Asked,
        *,
        timeout: float | None,  # noqa: ASYNC109 - travels to the peer
    ) -> Answered: ...

    def stream(
        self,
        method: ServerStream[Asked, Answered],
        request: Asked,
        *,
        timeout: float | None = None,  # travels to the peer
    ) -> AsyncGenerator[Answered, None]: ...


class PodBook(Protocol):
    """The pods of this node, for whoever asks about them."""

    def find(self, namespace: str, name: str) -> tuple[Pod, Observed] | None:
        """The pod of that name, and what the runtime has of it."""
        ...

    def all(self) -> list[tuple[Pod, Object]]:
        """Every pod, and the object that a client should see, with the newest status."""
        ...
