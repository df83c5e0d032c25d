"""Requests that are answered by asking somebody else: an API server asks kubelets, a kubelet its runtime.

An answer goes on as it comes. A conversation over a WebSocket is opened on the far side first, so that a refusal there
is a refusal here; then messages are carried both ways, or, in SPDY, bytes that nobody looks at. Who is not reached is
told in the words that operators know.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp
from aiohttp import WSCloseCode
from yarl import URL

from podwire.interfaces import ByteStream
from podwire.protocols.k8sapi.server_side import Request, Response, Socket, Stream, Tunnel, Upgrade
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request
from podwire.protocols.streaming import spdy as spdy_frames
from podwire.protocols.streaming import upgrading
from podwire.protocols.streaming.channels import CLOSE, PROTOCOLS, V5
from podwire.protocols.streaming.remote_command import Channel
from podwire.transports import http_switch, spdy_client
from podwire.transports.http_client import attentive_socket
from podwire.transports.http_websocket_client import MAX_REFUSAL, FarSocket, HandshakeRefused, dial, told_refusal
from podwire.transports.spdy_client import FarStreams

CONNECT_SECONDS = 10.0
HEAD_SECONDS = 30.0
"""From the connection to the head of the answer, or the end of the handshake."""
CHUNK = 64 * 1024


@contextlib.asynccontextmanager
async def relays(context: ssl.SSLContext | None = None) -> AsyncIterator["Relay"]:
    """A relay that shows and trusts what `context` says; closed at the end."""
    connector = aiohttp.TCPConnector(limit=0, ssl=context or True, socket_factory=attentive_socket)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    headers = {"User-Agent": "podwire", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers, raise_for_status=told_refusal
    ) as session:
        yield Relay(session, context)


class Relay:
    """Asks others on behalf of a request."""

    def __init__(self, session: aiohttp.ClientSession, context: ssl.SSLContext | None = None) -> None:
        self._session = session
        self._context = context

    async def answer(self, method: str, url: str, body: bytes = b"") -> Response | Stream:
        """The far answer: whole when it is a refusal, else as it comes. Raises ApiError when there is none."""
        with _told(f'{method.capitalize()} "{url}"', url):
            async with asyncio.timeout(HEAD_SECONDS):
                response = await self._session.request(
                    method, URL(url, encoded=True), data=body or None, allow_redirects=False
                )
        content_type = response.headers.get("Content-Type", "text/plain")
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return Stream(chunks=_chunks(response), status=response.status, content_type=content_type)
        try:
            with _told(f'{method.capitalize()} "{url}"', url):
                async with asyncio.timeout(HEAD_SECONDS):
                    refusal = await response.content.read(MAX_REFUSAL)
        finally:
            response.close()
        return Response(status=response.status, body=refusal, content_type=content_type)

    async def conversation(self, url: str, asked: Request, spdy: Collection[Channel] = ()) -> Upgrade | Response:
        """The far conversation, open already, or its refusal: over a WebSocket, or over SPDY with these channels.

        Raises ApiError when nobody is there.
        """
        protocol = wanted(asked)
        far: FarSocket | FarStreams
        try:
            with _told("error dialing backend", url):
                if spdy:
                    far = await spdy_client.dial(url, spdy, seconds=HEAD_SECONDS)
                else:
                    far = await dial(self._session, url, PROTOCOLS, seconds=HEAD_SECONDS)
        except HandshakeRefused as refusal:
            return Response(status=refusal.status, body=refusal.body, content_type=refusal.content_type)
        if not far.protocol:
            await far.close()
            raise ApiError(Reason.INTERNAL_ERROR, f"error dialing backend: {_place(url)} speaks none of {PROTOCOLS}")
        return Upgrade(protocols=(protocol,), run=lambda near: carry(near, far), release=far.close)

    async def tunnel(self, url: str, asked: Request) -> Tunnel | Upgrade | Response:
        """SPDY as the far side speaks it, or its refusal: to a client of SPDY, or of SPDY within a WebSocket.

        Raises ApiError when nobody is there.
        """
        within = upgrading.tunnelled(asked.headers)
        versions = within or upgrading.versions(asked.headers)
        try:
            with _told("error dialing backend", url):
                far = await http_switch.dial(url, versions, seconds=HEAD_SECONDS, context=self._context)
        except HandshakeRefused as refusal:
            return Response(status=refusal.status, body=refusal.body, content_type=refusal.content_type)
        if within:
            protocols = (f"{upgrading.TUNNELLED}{far.version}",)
            return Upgrade(protocols=protocols, run=lambda near: carry_bytes(Messages(near), far), release=far.close)
        headers = ((upgrading.VERSION, far.version),) if far.version else ()
        return Tunnel(
            protocol=spdy_frames.PROTOCOL, headers=headers, run=lambda near: carry_bytes(near, far), release=far.close
        )


def wanted(asked: Request) -> str:
    """The protocol of the client's that both sides know. Raises ApiError."""
    offered = [each.strip() for each in asked.headers.get("sec-websocket-protocol", "").split(",")]
    for each in offered:
        if each in PROTOCOLS:
            return each
    raise bad_request(f"no subprotocol of {', '.join(filter(None, offered)) or 'none'} is served here, but {PROTOCOLS}")


async def carry(near: Socket, far: FarSocket | FarStreams) -> None:
    """Messages both ways until one side is done; how the far side ended is told to the near one."""
    halves = near.protocol == far.protocol == V5
    sending = asyncio.create_task(_pass_on(near, far, halves=halves), name="to the far side")
    receiving = asyncio.create_task(_pass_on(far, near, halves=halves), name="from the far side")
    try:
        await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
        if receiving.done() and not far.ended_well:
            await near.close(WSCloseCode.INTERNAL_ERROR)
    finally:
        for each in (sending, receiving):
            each.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)


async def _pass_on(source: Socket, sink: Socket, *, halves: bool) -> None:
    """Messages are the same in both protocols but for one: v4 has no word for the end of a channel.

    So a command that reads its input to the end does not see that end on a runtime that speaks no v5 (containerd).
    """
    with contextlib.suppress(ConnectionError):
        while (message := await source.receive()) is not None:
            data = message.encode() if isinstance(message, str) else message
            if halves or data[:1] != bytes((CLOSE,)):
                await sink.send(data)


class Messages:
    """The messages of a WebSocket as bytes, wherever they are cut. Implements podwire.interfaces.ByteStream."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._rest = b""

    async def read(self, limit: int) -> bytes:
        while not self._rest:
            message = await self._socket.receive()
            if message is None:
                return b""
            self._rest = message.encode() if isinstance(message, str) else message
        data, self._rest = self._rest[:limit], self._rest[limit:]
        return data

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)

    async def close(self) -> None:
        await self._socket.close()


async def carry_bytes(near: ByteStream, far: ByteStream) -> None:
    """Bytes both ways until one side is done: SPDY tells within itself what has ended before."""
    ways = [
        asyncio.create_task(_copy(near, far), name="bytes to the far side"),
        asyncio.create_task(_copy(far, near), name="bytes from the far side"),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in ways:
            each.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(source: ByteStream, sink: ByteStream) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            await sink.write(data)


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """An answer that breaks off breaks off here, too: the chunked encoding is not ended."""
    try:
        while chunk := await response.content.readany():
            yield chunk
    except aiohttp.ClientError as error:
        raise ConnectionResetError(f"the far side broke off: {error}") from error
    finally:
        response.close()


@contextlib.contextmanager
def _told(doing: str, url: str) -> Iterator[None]:
    """Why somebody was not reached, as a Status of code 500."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one, too
        raise ApiError(Reason.UNKNOWN, f"{doing}: {_reason(error, url)}", code=500) from error


def _reason(error: Exception, url: str) -> str:
    """In the words of Go's net package, which operators know from their clusters."""
    if isinstance(error, aiohttp.ClientConnectorDNSError | socket.gaierror):
        return f"dial tcp: lookup {urlsplit(url).hostname}: no such host"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"tls: {error.os_error}"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error}"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno is not None:
        return f"dial tcp {_place(url)}: connect: {os.strerror(error.os_error.errno).lower()}"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"dial tcp {_place(url)}: i/o timeout"
    if isinstance(error, TimeoutError):
        return f"{_place(url)}: no answer within {HEAD_SECONDS:g}s"
    if isinstance(error, OSError) and error.errno is not None:
        return f"dial tcp {_place(url)}: connect: {os.strerror(error.errno).lower()}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__


def _place(url: str) -> str:
    return urlsplit(url).netloc
