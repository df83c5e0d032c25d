"""What the driver's process is handed: an API server, sockets of its own, a trace."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

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

    def reads(self, uid: str, path: str) -> AbstractContextManager[Passing]:
        """Has asked the API server."""
        ...

    def works(self, uid: str, what: str) -> AbstractContextManager[Passing]:
        """Does something by itself: prepares, attaches, detaches."""
        ...


Now = Callable[[], float]
"""Monotonic seconds."""
