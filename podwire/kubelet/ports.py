"""What the kubelet needs from others, in its own words."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from podwire.kubelet.pods.observed import ObservedPod
from podwire.objects.pods import Pod
from podwire.protocols.grpc_methods import Handler, Method, ServerStream, Unary
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


class Peer(Protocol):
    """Whoever answers gRPC on a socket. Refusals are RpcErrors."""

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


class Cri(Peer, Protocol):
    """Calls of the Container Runtime Interface; `protocols/cri/methods.py` has them all."""


class DriverPeer(Peer, Protocol):
    """A driver of devices, whose coming and going is seen without asking it anything."""

    def connections(self) -> AsyncGenerator[bool, None]:
        """Whether it is there: at once, and whenever that changes."""
        ...


class PluginSockets(Protocol):
    """The sockets by which plugins and a kubelet find each other."""

    def connect(self, socket: Path) -> AbstractAsyncContextManager[Peer]:
        """A plugin; connected with the first call."""
        ...

    def driver(self, socket: Path) -> AbstractAsyncContextManager[DriverPeer]:
        """The same for a driver that serves claims."""
        ...

    def serve(
        self, socket: Path, table: Iterable[Method], handlers: Mapping[str, Handler]
    ) -> AbstractAsyncContextManager[None]:
        """Answer while the context is open. OSError when there can be no socket."""
        ...

    def changes(self, directory: Path) -> AsyncIterator[None]:
        """At once, and then whenever something below the directory came or went; it must be there."""
        ...


class PodLister(Protocol):
    """The pods of this node, for whoever asks about them."""

    def find(self, namespace: str, name: str) -> tuple[Pod, ObservedPod] | None:
        """The pod of that name, and what the runtime has of it."""
        ...

    def all(self) -> list[tuple[Pod, Object]]:
        """Every pod, and the object that a client should see, with the newest status."""
        ...
