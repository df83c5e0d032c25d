"""The streaming server: answers the URLs of Exec, Attach and PortForward, each of them once.

A client comes over a WebSocket or over SPDY; a session is the same over both: messages in channels.
"""

import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from podwire.interfaces import ByteStream, Clock
from podwire.protocols.grpc_status import ResourceExhausted
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Socket, Tunnel, Upgrade
from podwire.protocols.streaming import spdy, upgrading
from podwire.protocols.streaming.channels import PROTOCOLS, Channel, Streams
from podwire.runtime.limits import RuntimeLimits
from podwire.transports.spdy_server import VERSIONS, Frames, SpdySocket

TEXT = "text/plain"


class TargetGone(Exception):
    """The container or pod of a URL has ended; says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHandler:
    """Serves the client of one URL."""

    check: Callable[[], None]
    """Raises TargetGone."""
    versions: tuple[str, ...]
    """Protocol versions over SPDY."""
    over_spdy: Callable[[ByteStream, str], Awaitable[None]]
    """Called with the negotiated version."""
    over_websocket: Callable[[Socket], Awaitable[None]] | None = None


def session_handler(
    streams: Streams, check: Callable[[], None], run: Callable[[Socket], Awaitable[None]]
) -> StreamHandler:
    """Returns the handler of an exec or attach. Over SPDY the session begins when all its streams are open."""

    async def over_spdy(wire: ByteStream, version: str) -> None:
        socket = SpdySocket(Frames(wire), version)
        try:
            if await socket.open(_channels(streams)):
                await run(socket)
        finally:
            await socket.close()

    return StreamHandler(check=check, versions=VERSIONS, over_spdy=over_spdy, over_websocket=run)


def _channels(streams: Streams) -> Collection[Channel]:
    requested = {
        Channel.ERROR: True,
        Channel.STDIN: streams.stdin,
        Channel.STDOUT: streams.stdout,
        Channel.STDERR: streams.stderr,
        Channel.RESIZE: streams.tty,
    }
    return [channel for channel, is_requested in requested.items() if is_requested]


class StreamingServer:
    """Issues URLs, and serves the clients that come to them."""

    def __init__(self, clock: Clock, limits: RuntimeLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or RuntimeLimits()
        self._handlers: dict[str, tuple[StreamHandler, float]] = {}
        """By token: the handler, and until when it is valid."""
        self.base_url = ""

    def add(self, method: str, handler: StreamHandler) -> str:
        """Returns a URL that is valid for one session within a minute. Raises ResourceExhausted."""
        now = self._clock.monotonic()
        self._handlers = {token: entry for token, entry in self._handlers.items() if entry[1] > now}
        if len(self._handlers) >= self._limits.stream_urls:
            raise ResourceExhausted(f"{self._limits.stream_urls} sessions wait for their clients already")
        token = secrets.token_urlsafe(16)
        self._handlers[token] = (handler, now + self._limits.stream_url)
        return f"{self.base_url}/{method}/{token}"

    async def handle(self, request: Request) -> Answer:
        """Serves one client; its URL is invalid from now on."""
        _, _, token = request.path.rpartition("/")
        handler, valid_until = self._handlers.pop(token, (None, 0.0))
        if handler is None or valid_until < self._clock.monotonic():
            return Response(status=404, body=b"no such session\n", content_type=TEXT)
        try:
            handler.check()
        except TargetGone as error:
            return Response(status=409, body=f"{error}\n".encode(), content_type=TEXT)
        if upgrading.wants_spdy(request.headers):
            return _over_spdy(handler, request)
        if handler.over_websocket is not None and upgrading.wants_websocket(request.headers):
            return Upgrade(protocols=PROTOCOLS, run=handler.over_websocket)
        protocols = f"{spdy.PROTOCOL} or a WebSocket" if handler.over_websocket else spdy.PROTOCOL
        text = f"this URL is for a session over {protocols}: an upgrade is required\n"
        return Response(status=400, body=text.encode(), content_type=TEXT)


def _over_spdy(handler: StreamHandler, request: Request) -> Answer:
    offered = upgrading.versions(request.headers)
    try:
        version = upgrading.choose(offered, handler.versions)
    except upgrading.NoVersion as error:
        accepted = tuple((upgrading.ACCEPTED, version) for version in handler.versions)
        return Response(status=403, body=f"{error}\n".encode(), content_type=TEXT, headers=accepted)

    async def run(wire: ByteStream) -> None:
        await handler.over_spdy(wire, version)

    return Tunnel(protocol=spdy.PROTOCOL, headers=((upgrading.VERSION, version),), run=run)
