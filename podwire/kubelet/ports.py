"""Interfaces of the kubelet to the outside: the container runtime, plugins of its node, and its pods for the server."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from podwire.kubelet.pods.observed import ObservedPod
from podwire.objects.pods import Pod
from podwire.protocols.grpc_methods import Handler, Method, ServerStream, Unary
from podwire.protocols.k8sapi.watch import Object

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class Peer(Protocol):
    """A gRPC server on a unix socket. Errors are RpcErrors."""

    async def call(
        self,
        method: Unary[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout: float | None,  # noqa: ASYNC109 - travels to the peer
    ) -> ResponseT: ...

    def stream(
        self,
        method: ServerStream[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout: float | None = None,  # travels to the peer
    ) -> AsyncGenerator[ResponseT, None]: ...


class Cri(Peer, Protocol):
    """Calls of the Container Runtime Interface; `protocols/cri/methods.py` has them all."""


class DriverPeer(Peer, Protocol):
    """A DRA driver, whose connection is watched without calling it."""

    def connections(self) -> AsyncGenerator[bool, None]:
        """Yields whether it is connected: at once, and whenever that changes."""
        ...


class PluginSockets(Protocol):
    """Unix sockets between a kubelet and the plugins of its node."""

    def connect(self, socket: Path) -> AbstractAsyncContextManager[Peer]:
        """A client of a plugin; connects with the first call."""
        ...

    def driver(self, socket: Path) -> AbstractAsyncContextManager[DriverPeer]:
        """A client of a DRA driver."""
        ...

    def serve(
        self, socket: Path, table: Iterable[Method], handlers: Mapping[str, Handler]
    ) -> AbstractAsyncContextManager[None]:
        """Serve while the context is open. Raises OSError if the socket cannot be created."""
        ...

    def changes(self, directory: Path) -> AsyncIterator[None]:
        """Yields at once, and whenever something below an existing directory was created or removed."""
        ...


class PodLister(Protocol):
    """The pods of this node, for the kubelet's server and the pod-resources API."""

    def find(self, namespace: str, name: str) -> tuple[Pod, ObservedPod] | None:
        """The pod of that name and its state in the runtime."""
        ...

    def all(self) -> list[tuple[Pod, Object]]:
        """Every pod with its object as clients should see it: with the newest status."""
        ...
