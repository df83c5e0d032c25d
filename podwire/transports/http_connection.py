"""One server connection: aiohttp's parser and loop, plus limits against slow and oversized request heads.

A head must be complete within `limits.head_seconds` and is rejected above `limits.head_bytes`; TCP keep-alive detects
a vanished peer. An unparsable request is answered with a Status and the connection is closed, so that no bytes after
it are ever taken for a request (request smuggling).
"""

import asyncio
import hashlib
import logging
import math
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.transports.http_connections import Connections, network_of
from podwire.transports.http_tunnel import Wire

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of the HTTP server, in seconds and bytes."""

    head_bytes: int = 64 * 1024
    head_count: int = 256
    head_seconds: float = 10.0
    """From the connection (or a request's first byte) to the end of the request's head; also the TLS handshake."""
    body_seconds: float = 60.0
    idle_seconds: float = 120.0
    """Longer than the 90 s after which Go clients drop an idle connection, so that they never meet a closing one."""
    linger_seconds: float = 2.0
    """How long the rest of an unread body is discarded, so that the client can read the error."""
    unauthenticated_idle_seconds: float = 10.0
    """As `idle_seconds`, for a peer that never authenticated (see http_connections)."""
    silence_seconds: int = 60
    """A peer that acknowledges nothing for this long is considered dead."""
    connections: int = 10_000
    """Above this, an idle connection is closed for a new one; lowered to what the open-files limit allows."""
    unauthenticated_per_address: int = 0
    """Connections of one address (IPv6: of a /64) that are not authenticated; 0 for a quarter of all."""


class Connection(web.RequestHandler):
    """HTTP/1.1 on one transport."""

    __slots__ = (
        "_connections",
        "_head_bytes",
        "_head_timer",
        "_limits",
        "_taken",
        "address",
        "certificate",
        "certificate_end",
        "handshake",
        "last_used",
        "network",
        "wire",
    )

    def __init__(self, manager: web.Server, connections: Connections, limits: HttpLimits, address: str) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_seconds,
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes None for "no access log"
            max_line_size=limits.head_bytes,
            max_field_size=limits.head_bytes,
            max_headers=limits.head_count,
            lingering_time=limits.linger_seconds,
            auto_decompress=False,  # the handler rejects compressed bodies: no decompression bombs
        )
        self._connections = connections
        self._limits = limits
        self.address = address
        self.network = network_of(address)
        self.last_used = self._loop.time()
        self.handshake: asyncio.Task[None] | None = None
        """The task that accepts the connection, until it has ended."""
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._taken: Wire | None = None
        self.certificate: Certificate | None = None
        self.certificate_end = math.inf
        """When the client certificate ceases to be valid, in seconds since the epoch."""
        self.wire: asyncio.Transport | None = None
        """A second reference: aiohttp clears `transport` before the last bytes are sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.wire = self.transport
        presented = transport.get_extra_info("peercert")
        if presented:
            self.certificate = certificate_of(presented, transport.get_extra_info("ssl_object").getpeercert(True))
            self.certificate_end = ssl.cert_time_to_seconds(presented["notAfter"])
        if self.certificate is not None:
            self._connections.trust(self)
        _detect_dead_peer(transport.get_extra_info("socket"), self._limits.silence_seconds)
        self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_arrived()
        if self._taken is not None:
            self._taken.lost()
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Whether no request is in progress; also while the TLS handshake lasts."""
        return self._taken is None and (self.wire is None or (self._waiter is not None and not self._waiter.done()))

    def evict(self) -> None:
        if self.wire is not None:
            self.wire.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def used(self) -> None:
        """A request came."""
        self._connections.used(self, self._loop.time())

    def trust(self) -> None:
        """The peer is authenticated."""
        self._connections.trust(self)

    def take(self) -> Wire:
        """Hands the bytes of the connection to the caller; no request follows. Raises ConnectionError."""
        if self.transport is None:
            raise ConnectionResetError("the client disconnected")
        self._taken = Wire(self.transport)
        return self._taken

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._taken is not None:
            self._taken.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taken is not None:
            self._taken.resume()

    def data_received(self, data: bytes) -> None:
        if self._taken is not None:
            self._taken.feed(data)
            return
        heads = self._request_count
        super().data_received(data)
        if self._request_count != heads:
            self._head_arrived()
        elif self._waiter is not None and not self._waiter.done():
            self._head_grows(len(data))

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._limits.head_seconds, self._cut)

    def _head_arrived(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_grows(self, size: int) -> None:
        """Bounds the time and size of a head that has begun."""
        self._head_bytes += size
        self._expect_head()
        if self._head_bytes > self._limits.head_bytes and self.transport is not None:
            self.transport.write(refusal(head_too_large(self._limits)))
            self._cut()

    def _cut(self) -> None:
        self._head_timer = None
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,  # noqa: ARG002 - the signature is aiohttp's, the code is the error's
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers a request that could not be parsed or whose answer failed; always the last answer of a connection."""
        if not isinstance(exc, HttpProcessingError):
            log.error("HTTP answer failed unexpectedly", exc_info=exc, extra={"peer": request.remote})
            if request.writer.output_size > 0:
                raise ConnectionError("the answer has begun and cannot be replaced by an error") from exc
            return closing(INTERNAL_ERROR)
        log.debug("rejected malformed HTTP request", extra={"peer": request.remote, "error": message})
        return closing(_unreadable(exc, self._limits))


def connection_of(request: web.BaseRequest) -> Connection:
    connection = request.protocol
    if not isinstance(connection, Connection):
        raise TypeError("the request came over another kind of connection")
    return connection


INTERNAL_ERROR = ApiError(Reason.INTERNAL_ERROR, "Internal error occurred; see the server's log")


def _unreadable(error: HttpProcessingError, limits: HttpLimits) -> ApiError:
    if isinstance(error, LineTooLong) or error.message.startswith("Too many headers"):
        return head_too_large(limits)
    return ApiError(Reason.BAD_REQUEST, error.message.partition("\n")[0].rstrip(":"))


def head_too_large(limits: HttpLimits) -> ApiError:
    return ApiError(
        Reason.BAD_REQUEST,
        f"the request line and headers are larger than {limits.head_bytes} bytes or more than {limits.head_count}",
        code=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    )


def status_body(error: ApiError) -> bytes:
    return msgspec.json.encode(error.status())


def closing(error: ApiError) -> web.Response:
    """Creates an error response after which the connection is closed."""
    response = web.Response(status=error.code, body=status_body(error), content_type="application/json")
    response.headers["Server"] = "podwire"
    response.force_close()
    return response


def refusal(error: ApiError) -> bytes:
    """Encodes the same as raw bytes, for a connection without a request to answer."""
    body = status_body(error)
    phrase = HTTPStatus(error.code).phrase
    head = (
        f"HTTP/1.1 {error.code} {phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def certificate_of(presented: dict[str, Any], der: bytes) -> Certificate:
    """Returns a verified client certificate as handlers see it."""
    pairs = [pair for names in presented.get("subject", ()) for pair in names]
    common = next(iter(_values(pairs, "commonName")), "")
    return Certificate(common, tuple(_values(pairs, "organizationName")), hashlib.sha256(der).hexdigest())


def _values(pairs: Iterable[tuple[str, str]], name: str) -> Iterable[str]:
    return (value for key, value in pairs if key == name)


def _detect_dead_peer(sock: Any, seconds: int) -> None:
    """Lets TCP detect a dead peer: keep-alive probes, and a time-out for unacknowledged data."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, seconds // 2))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // 6))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)
