"""The HTTP interface of the client, and its errors.

ClientError
├── Unreachable    no connection was made, nothing was sent
├── NoCredentials  the credential plugin or the OIDC issuer of the kubeconfig failed, nothing was sent
├── Interrupted    the connection broke: a write may or may not have happened
└── TooSlow        no whole answer before the deadline: likewise
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Query = Sequence[tuple[str, str]]


class ClientError(Exception):
    """No answer. What the server refuses is an ApiError."""


class Unreachable(ClientError):
    pass


class NoCredentials(ClientError):
    pass


class Interrupted(ClientError):
    pass


class TooSlow(ClientError):
    pass


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Incoming(Protocol):
    """An answer that goes on."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """Returns the next bytes as they arrive; empty at a clean end. Raises Interrupted."""
        ...

    def close(self) -> None:
        """Hang up. Nothing happens when it ended already."""
        ...


class Http(Protocol):
    """Sends requests to one server, with whatever identifies the caller."""

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """Raises Unreachable or Interrupted."""
        ...

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        """Returns with the answer's head. Raises Unreachable or Interrupted."""
        ...
