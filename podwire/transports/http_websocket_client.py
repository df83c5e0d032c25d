"""Client-side WebSockets, on aiohttp: the handshake, its rejection with the server's body, and the socket."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Mapping

import aiohttp
from aiohttp import WSCloseCode, WSMsgType
from yarl import URL

MAX_MESSAGE = 1024 * 1024
CLOSE_SECONDS = 2.0
MAX_REFUSAL = 64 * 1024
"""Bytes of a rejection that are read."""

_DATA = frozenset({WSMsgType.BINARY, WSMsgType.TEXT})


class HandshakeRefused(Exception):
    """The server rejected the handshake."""

    def __init__(self, status: int, content_type: str, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:1000].decode('utf-8', 'replace').strip()}")
        self.status = status
        self.content_type = content_type
        self.body = body


class FarSocket:
    """The client side of a WebSocket. Implements podwire.protocols.k8sapi.server_side.Socket."""

    def __init__(self, response: "aiohttp.ClientWebSocketResponse[bool]") -> None:
        self._response = response
        self._close_code: int | None = None

    @property
    def protocol(self) -> str:
        return self._response.protocol or ""

    @property
    def ended_well(self) -> bool:
        """Whether the server closed it with a normal close code. A server that closes the connection at once, so that
        its close frame cannot be answered, has done so, too; aiohttp's `close_code` is 1006 then."""
        return self._close_code == WSCloseCode.OK

    async def receive(self) -> bytes | str | None:
        if self._response.closed:
            return None
        message = await self._response.receive()
        if message.type is WSMsgType.CLOSE:
            self._close_code = message.data
        data: bytes | str | None = message.data if message.type in _DATA else None
        return data

    async def send(self, data: bytes) -> None:
        await self._response.send_bytes(data)

    async def close(self, code: int = WSCloseCode.OK) -> None:
        with contextlib.suppress(ConnectionError):
            await self._response.close(code=code)


async def raise_for_refusal(response: aiohttp.ClientResponse) -> None:
    """A hook for a session's `raise_for_status`: raises HandshakeRefused while the body can still be read."""
    if response.status >= 400 and "Upgrade" in response.request_info.headers:
        body = await response.content.read(MAX_REFUSAL)
        response.close()
        raise HandshakeRefused(response.status, response.content_type, body)


async def dial(
    session: aiohttp.ClientSession,
    url: str,
    protocols: Iterable[str],
    context: ssl.SSLContext | bool | None = None,
    *,
    seconds: float,
    headers: Mapping[str, str] | None = None,
    server_name: str | None = None,
    proxy: URL | None = None,
    proxy_headers: Mapping[str, str] | None = None,
) -> FarSocket:
    """Opens a WebSocket to this URL. Raises HandshakeRefused, aiohttp's errors, and TimeoutError."""
    async with asyncio.timeout(seconds):
        response = await session.ws_connect(
            URL(url, encoded=True),
            protocols=tuple(protocols),
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
            max_msg_size=MAX_MESSAGE,
            ssl=context or True,
            headers=headers,
            server_hostname=server_name,
            proxy=proxy,
            proxy_headers=proxy_headers,
        )
    return FarSocket(response)
