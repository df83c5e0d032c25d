"""Relays requests to a backend: from the API server to a kubelet, from a kubelet to its runtime.

Answers are streamed. A WebSocket or SPDY connection is opened on the backend first, so that a rejection there is the
answer here; then messages (WebSocket) or bytes (SPDY) are copied both ways. Errors about an unreachable backend have
the wording of Go's net package, which operators know.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
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
from podwire.protocols.streaming.channels import CLOSE, PROTOCOLS, V5, Channel
from podwire.protocols.streaming.dialects import COMMAND_PROTOCOLS, READER_PROTOCOLS
from podwire.transports import http_upgrade_client, spdy_client
from podwire.transports.http_client import keepalive_socket
from podwire.transports.http_websocket_client import MAX_REFUSAL, FarSocket, HandshakeRefused, dial, raise_for_refusal
from podwire.transports.spdy_client import FarStreams
from podwire.transports.tls_reading import WholeResponse

CONNECT_SECONDS = 10.0
HEAD_SECONDS = 30.0
"""From the connection to the head of the answer, or the end of the handshake."""
CHUNK = 64 * 1024


Contexts = Callable[[], ssl.SSLContext | None]
"""Returns the TLS context for the next request: its credentials and its trust; None for the system's trust."""


@contextlib.asynccontextmanager
async def relays(context: Contexts = lambda: None, *, head_seconds: float = HEAD_SECONDS) -> AsyncIterator["Relay"]:
    """Yields a relay. A connection is used only by requests with the context with which it was made."""
    connector = aiohttp.TCPConnector(limit=0, socket_factory=keepalive_socket)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    headers = {"User-Agent": "podwire", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        headers=headers,
        raise_for_status=raise_for_refusal,
        response_class=WholeResponse,
    ) as session:
        yield Relay(session, context, head_seconds)


class Relay:
    """Sends requests to backends on behalf of clients."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        context: Contexts = lambda: None,
        head_seconds: float = HEAD_SECONDS,
    ) -> None:
        self._session = session
        self._context = context
        self._head_seconds = head_seconds

    async def answer(self, method: str, url: str, body: bytes = b"") -> Response | Stream:
        """Returns the answer of the backend: whole if it is an error, else as a stream. Raises ApiError without one."""
        with self._backend_errors(f'{method.capitalize()} "{url}"', url):
            async with asyncio.timeout(self._head_seconds):
                response = await self._session.request(
                    method,
                    URL(url, encoded=True),
                    data=body or None,
                    allow_redirects=False,
                    ssl=self._context() or True,
                )
        content_type = response.headers.get("Content-Type", "text/plain")
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return Stream(chunks=backend_chunks(response), status=response.status, content_type=content_type)
        try:
            with self._backend_errors(f'{method.capitalize()} "{url}"', url):
                async with asyncio.timeout(self._head_seconds):
                    refusal = await response.content.read(MAX_REFUSAL)
        finally:
            response.close()
        return Response(status=response.status, body=refusal, content_type=content_type)

    async def conversation(
        self,
        url: str,
        asked: Request,
        spdy: Collection[Channel] = (),
        *,
        protocols: Collection[str] = COMMAND_PROTOCOLS,
    ) -> Upgrade | Response:
        """Opens exec, attach or port-forward on the backend, over a WebSocket or over SPDY with these channels; returns
        its rejection as a response. `protocols` are the subprotocols that the client may speak.

        Raises ApiError when the backend is unreachable.
        """
        protocol = choose_protocol(asked, protocols)
        far: FarSocket | FarStreams
        try:
            with self._backend_errors("error dialing backend", url):
                if spdy:
                    far = await spdy_client.dial(url, spdy, seconds=self._head_seconds)
                else:
                    far = await dial(self._session, url, PROTOCOLS, self._context(), seconds=self._head_seconds)
        except HandshakeRefused as refusal:
            return Response(status=refusal.status, body=refusal.body, content_type=refusal.content_type)
        if not far.protocol:
            await far.close()
            raise ApiError(
                Reason.INTERNAL_ERROR,
                f"error dialing backend: {_place(url)} supports none of the subprotocols {PROTOCOLS}",
            )
        command = protocols == COMMAND_PROTOCOLS
        return Upgrade(protocols=(protocol,), run=lambda near: carry(near, far, command=command), release=far.close)

    async def tunnel(self, url: str, asked: Request) -> Tunnel | Upgrade | Response:
        """Opens SPDY on the backend for a client of SPDY, or of SPDY inside a WebSocket; returns its rejection as a
        response.

        Raises ApiError when the backend is unreachable.
        """
        within = upgrading.tunnelled(asked.headers)
        versions = within or upgrading.versions(asked.headers)
        try:
            with self._backend_errors("error dialing backend", url):
                far = await http_upgrade_client.dial(url, versions, seconds=self._head_seconds, context=self._context())
        except HandshakeRefused as refusal:
            return Response(status=refusal.status, body=refusal.body, content_type=refusal.content_type)
        if within:
            protocols = (f"{upgrading.TUNNELLED}{far.version}",)
            return Upgrade(protocols=protocols, run=lambda near: carry_bytes(Messages(near), far), release=far.close)
        headers = ((upgrading.VERSION, far.version),) if far.version else ()
        return Tunnel(
            protocol=spdy_frames.PROTOCOL, headers=headers, run=lambda near: carry_bytes(near, far), release=far.close
        )

    @contextlib.contextmanager
    def _backend_errors(self, doing: str, url: str) -> Iterator[None]:
        """Translates connection errors into a Status of code 500."""
        try:
            yield
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one, too
            reason = reason_of(error, url, self._head_seconds)
            raise ApiError(Reason.UNKNOWN, f"{doing}: {reason}", code=500) from error


def choose_protocol(asked: Request, served: Collection[str] = COMMAND_PROTOCOLS) -> str:
    """Returns the first subprotocol of the client that is served. Raises ApiError."""
    offered = [protocol.strip() for protocol in asked.headers.get("sec-websocket-protocol", "").split(",")]
    for protocol in offered:
        if protocol in served:
            return protocol
    names = ", ".join(filter(None, offered)) or "none"
    raise bad_request(f"no subprotocol of {names} is served here, but {tuple(served)}")


class _Outcome:
    """Whether the outcome of a command was passed on."""

    known = False


async def carry(near: Socket, far: FarSocket | FarStreams, *, command: bool = True) -> None:
    """Copies messages both ways until the client or the backend has closed.

    An abnormal end of the backend is passed on to the client, unless the outcome of the `command` was passed on before:
    some servers close with other codes than 1000, and a client that sees a failure drops the exit status. A backend
    that accepts no more input may still have output and the outcome to send.
    """
    halves, ended = near.protocol == far.protocol == V5, _Outcome()
    sending = asyncio.create_task(_pass_on(near, far, halves=halves), name="to the far side")
    receiving = asyncio.create_task(
        _pass_on(far, near, halves=halves, outcome=ended if command else None), name="from the far side"
    )
    try:
        await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
        if not receiving.done() and not sending.result():
            await asyncio.wait((receiving,))
        if receiving.done() and not far.ended_well and not ended.known:
            await near.close(WSCloseCode.INTERNAL_ERROR)
    finally:
        for task in (sending, receiving):
            task.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)


async def _pass_on(source: Socket, sink: Socket, *, halves: bool, outcome: _Outcome | None = None) -> bool:
    """Copies messages until the source has closed: True; or the sink accepts no more: False.

    Messages are the same in both protocols except one: v4 cannot signal the end of a channel. A command that reads its
    input to the end therefore never sees that end on a runtime without v5 (containerd).
    """
    while (message := await source.receive()) is not None:
        data = message.encode() if isinstance(message, str) else message
        if halves or data[:1] != bytes((CLOSE,)):
            try:
                await sink.send(data)
            except ConnectionError:
                return False
        if outcome is not None and len(data) > 1 and data[0] == Channel.ERROR:
            outcome.known = True
    return True


class Messages:
    """The messages of a WebSocket as one stream of bytes. Implements podwire.interfaces.ByteStream."""

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
    """Copies bytes both ways until one side closes; SPDY signals half-closed streams within itself."""
    copies = [
        asyncio.create_task(_copy(near, far), name="bytes to the far side"),
        asyncio.create_task(_copy(far, near), name="bytes from the far side"),
    ]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(source: ByteStream, sink: ByteStream) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            await sink.write(data)


def as_messages(answer: Response | Stream) -> Response | Upgrade:
    """A stream of bytes for a client that wants it over a WebSocket: each chunk is a message, after an empty one that
    tells the client that it is connected."""
    if isinstance(answer, Response):
        return answer
    chunks = answer.chunks

    async def send(near: Socket) -> None:
        await near.send(b"")
        sending = asyncio.create_task(_send_chunks(chunks, near), name="chunks to the client")
        gone = asyncio.create_task(_until_closed(near), name="end of the client")
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)

    async def release() -> None:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()

    return Upgrade(protocols=READER_PROTOCOLS, run=send, release=release)


async def _send_chunks(chunks: AsyncIterator[bytes], near: Socket) -> None:
    async for chunk in chunks:
        await near.send(chunk)


async def _until_closed(near: Socket) -> None:
    """Ignores all that the client sends."""
    while await near.receive() is not None:
        pass


async def backend_chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yields the chunks of an answer. A truncated answer stays truncated: the chunked encoding is not terminated."""
    try:
        while chunk := await response.content.readany():
            yield chunk
    except aiohttp.ClientError as error:
        raise ConnectionResetError(f"the backend closed the connection early: {error}") from error
    finally:
        response.close()


def reason_of(error: Exception, url: str, head_seconds: float) -> str:
    """Words an error as Go's net package does; operators know these texts."""
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
        return f"{_place(url)}: no answer within {head_seconds:g}s"
    if isinstance(error, OSError) and error.errno is not None:
        return f"dial tcp {_place(url)}: connect: {os.strerror(error.errno).lower()}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__


def _place(url: str) -> str:
    return urlsplit(url).netloc
