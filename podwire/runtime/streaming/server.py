"""The streaming server: conversations that were offered by a URL, kept until somebody comes for them; each taken once.

A client comes over a WebSocket or over SPDY, and speaks with the same conversation: messages in channels.
"""

import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from podwire.interfaces import ByteStream, Clock
from podwire.protocols.grpc_status import ResourceExhausted
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Socket, Tunnel, Upgrade
from podwire.protocols.streaming import spdy, upgrading
from podwire.protocols.streaming.channels import PROTOCOLS
from podwire.protocols.streaming.remote_command import Channel, Streams
from podwire.transports.spdy_server import VERSIONS, Frames, SpdySocket

SECONDS = 60.0
OFFERS = 1000

TEXT = "text/plain"


class TargetGone(Exception):
    """What was offered is there no more; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHandler:
    """A conversation for whoever comes."""

    check: Callable[[], None]
    """Raises Gone."""
    versions: tuple[str, ...]
    """That are spoken over SPDY."""
    over_spdy: Callable[[ByteStream, str], Awaitable[None]]
    """With the version that was agreed on."""
    over_websocket: Callable[[Socket], Awaitable[None]] | None = None


def talk(streams: Streams, check: Callable[[], None], converse: Callable[[Socket], Awaitable[None]]) -> StreamHandler:
    """An exec or attach: the same over both wires. Over SPDY it begins when its streams are there."""

    async def over_spdy(wire: ByteStream, version: str) -> None:
        socket = SpdySocket(Frames(wire), version)
        try:
            if await socket.open(_channels(streams)):
                await converse(socket)
        finally:
            await socket.close()

    return StreamHandler(check=check, versions=VERSIONS, over_spdy=over_spdy, over_websocket=converse)


def _channels(streams: Streams) -> Collection[Channel]:
    wanted = {
        Channel.ERROR: True,
        Channel.STDIN: streams.stdin,
        Channel.STDOUT: streams.stdout,
        Channel.STDERR: streams.stderr,
        Channel.RESIZE: streams.tty,
    }
    return [channel for channel, is_wanted in wanted.items() if is_wanted]


class StreamingServer:
    """Gives URLs, and answers who comes to them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offers: dict[str, tuple[StreamHandler, float]] = {}
        self.base_url = ""

    def add(self, what: str, offer: StreamHandler) -> str:
        """A URL that is good for one conversation within a minute. Raises ResourceExhausted."""
        now = self._clock.monotonic()
        self._offers = {key: each for key, each in self._offers.items() if each[1] > now}
        if len(self._offers) >= OFFERS:
            raise ResourceExhausted(f"{OFFERS} conversations are waiting already")
        token = secrets.token_urlsafe(16)
        self._offers[token] = (offer, now + SECONDS)
        return f"{self.base_url}/{what}/{token}"

    async def handle(self, request: Request) -> Answer:
        """One URL, one conversation."""
        _, _, token = request.path.rpartition("/")
        offer, until = self._offers.pop(token, (None, 0.0))
        if offer is None or until < self._clock.monotonic():
            return Response(status=404, body=b"no such conversation\n", content_type=TEXT)
        try:
            offer.check()
        except TargetGone as error:
            return Response(status=409, body=f"{error}\n".encode(), content_type=TEXT)
        if upgrading.wants_spdy(request.headers):
            return _over_spdy(offer, request)
        if offer.over_websocket is not None and upgrading.wants_websocket(request.headers):
            return Upgrade(protocols=PROTOCOLS, run=offer.over_websocket)
        wires = f"{spdy.PROTOCOL} or a WebSocket" if offer.over_websocket else spdy.PROTOCOL
        why = f"this is a conversation over {wires}: an upgrade to it is required\n"
        return Response(status=400, body=why.encode(), content_type=TEXT)


def _over_spdy(offer: StreamHandler, request: Request) -> Answer:
    offered = upgrading.versions(request.headers)
    try:
        version = upgrading.choose(offered, offer.versions)
    except upgrading.NoVersion as error:
        accepted = tuple((upgrading.ACCEPTED, each) for each in offer.versions)
        return Response(status=403, body=f"{error}\n".encode(), content_type=TEXT, headers=accepted)

    async def run(wire: ByteStream) -> None:
        await offer.over_spdy(wire, version)

    return Tunnel(protocol=spdy.PROTOCOL, headers=((upgrading.VERSION, version),), run=run)
