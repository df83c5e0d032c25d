"""Requests that are answered by asking somebody else: an API server asks kubelets, a kubelet its runtime.

An answer goes on as it comes. A conversation over a WebSocket is opened on the far side first, so that a refusal there
is a refusal here; then messages are carried both ways. Who is not reached is told in the words that operators know.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp
from aiohttp import WSCloseCode
from yarl import URL

from podwire.protocols.k8sapi.server_side import Request, Response, Socket, Stream, Upgrade
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request
from podwire.protocols.streaming.channels import CLOSE, PROTOCOLS, V5
from podwire.protocols.streaming.remote_command import Channel
from podwire.transports import spdy_client
from podwire.transports.http_client import attentive_socket
from podwire.transports.http_websocket_client import MAX_REFUSAL, FarSocket, HandshakeRefused, dial, told_refusal
from podwire.transports.spdy_client import FarStreams

CONNECT_SECONDS = 10.0
HEAD_SECONDS = 30.0
"""From the connection to the head of the answer, or the end of the handshake."""


@contextlib.asynccontextmanager
async def relays(context: ssl.SSLContext | None = None) -> AsyncIterator["Relay"]:
    """A relay that shows and trusts what `context` says; closed at the end."""
    connector = aiohttp.TCPConnector(limit=0, ssl=context or True, socket_factory=attentive_socket)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    headers = {"User-Agent": "podwire", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers, raise_for_status=told_refusal
    ) as session:
        yield Relay(session)


class Relay:
    """Asks others on behalf of a request."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

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
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {urlsplit(url).hostname}: no such host"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"tls: {error.os_error}"
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
