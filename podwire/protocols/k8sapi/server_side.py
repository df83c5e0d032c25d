"""The server side: requests and answers as values, so that a server is a function from one to the other.

`transports/http_server.py` turns HTTP into these and back; a test makes them by hand.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from podwire.interfaces import ByteStream


class BodyTooLarge(Exception):
    """The body is larger than what the reader asked for; nothing of it is kept."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"request body is larger than {limit} bytes")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Certificate:
    """The verified client certificate's subject: CN is the user, O are the groups."""

    common_name: str
    organizations: tuple[str, ...] = ()
    fingerprint: str = ""
    """SHA-256 of its DER form in hexadecimal; empty within the process, where a component only names itself."""


async def _no_body(_limit: int) -> bytes:
    return b""


async def _nothing() -> None: ...


def _untrusted() -> None: ...


MAX_OWN_BODY = 3 * 1024 * 1024
"""The largest body of a request of this process, which is not streamed."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. The body is read on demand, after authentication."""

    method: str
    path: str
    """As sent: percent-encoded, without the query."""
    query: Mapping[str, list[str]] = msgspec.field(default_factory=dict)
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Names in lower case."""
    certificate: Certificate | None = None
    peer: str = ""
    """The address of the client; empty within the process."""
    trust: Callable[[], None] = _untrusted
    """Called by a handler that knows who the caller is: the connection may then stay open for longer."""
    read: Callable[[int], Awaitable[bytes]] = _no_body
    """The whole body; raises BodyTooLarge above the given limit."""
    raw_query: str = ""
    """The query as sent; empty for requests of this process."""
    chunks: Callable[[], AsyncIterator[bytes]] | None = None
    """The body as it comes, instead of `read`; None for requests of this process."""

    async def body(self) -> AsyncIterator[bytes]:
        """Yields the body as it comes, without a limit."""
        if self.chunks is None:
            yield await self.read(MAX_OWN_BODY)
            return
        async for chunk in self.chunks():
            yield chunk

    def option(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer that goes on: headers at once, then chunks as they come; closing the iterator ends it."""

    chunks: AsyncIterator[bytes]
    status: int = 200
    content_type: str = "application/json"
    """Empty if the content has none."""
    headers: tuple[tuple[str, str], ...] = ()
    whole: bool = False
    """The chunks are one long body, such as a list, and not events that come over time."""
    length: int | None = None
    """The number of bytes in all chunks, if it is known."""


class Socket(Protocol):
    """A WebSocket after its handshake. Pings are answered while somebody receives."""

    @property
    def protocol(self) -> str:
        """The subprotocol that was agreed on; '' for none."""
        ...

    async def receive(self) -> bytes | str | None:
        """The next message, binary or text; None when the peer has closed or sent what no peer may."""
        ...

    async def send(self, data: bytes) -> None:
        """Send a binary message; waits while the peer is slow. Raises ConnectionError when it is gone."""
        ...

    async def close(self, code: int = 1000) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """An answer that is a conversation: over a WebSocket that is open while `run` runs, and closed when it returns.

    `run` is cancelled when the peer vanishes or the server stops.
    """

    protocols: tuple[str, ...]
    """Subprotocols that may be agreed on; the client's order decides. '' stands for a client that names none."""
    run: Callable[[Socket], Awaitable[None]]
    max_message: int = 1024 * 1024
    release: Callable[[], Awaitable[None]] = _nothing
    """Lets go of what was opened for the conversation: called last, also when no handshake was made and nothing ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """An answer that is a conversation in a protocol of its own, over the connection's bytes; `run` ends it.

    `run` is cancelled when the peer vanishes or the server stops.
    """

    protocol: str
    """The protocol that the client must name in its Upgrade header."""
    run: Callable[[ByteStream], Awaitable[None]]
    headers: tuple[tuple[str, str], ...] = ()
    release: Callable[[], Awaitable[None]] = _nothing
    """As an Upgrade's."""


Answer = Response | Stream | Upgrade | Tunnel
Handler = Callable[[Request], Awaitable[Answer]]
