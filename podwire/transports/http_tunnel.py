"""Connections of the HTTP server that leave HTTP: their bytes go to whoever has taken them, and nobody parses them."""

import asyncio
import contextlib
import logging
from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from podwire.protocols.k8sapi.server_side import Request, Tunnel
from podwire.protocols.k8sapi.status import bad_request

log = logging.getLogger(__name__)

WAITING = 64 * 1024
"""Bytes that may wait to be read; beyond twice as many, the peer is kept waiting."""


class Wire:
    """The bytes of a connection. Implements podwire.interfaces.ByteStream."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reader = asyncio.StreamReader(limit=WAITING)
        self._reader.set_transport(transport)
        self._writable = asyncio.Event()
        self._writable.set()

    def feed(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def hold(self) -> None:
        """The peer takes nothing more for now."""
        self._writable.clear()

    def go_on(self) -> None:
        self._writable.set()

    def lost(self) -> None:
        self._reader.feed_eof()
        self._writable.set()

    async def read(self, limit: int) -> bytes:
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        """Waits while the peer is slow. Raises ConnectionError when it is gone."""
        if self._transport.is_closing():
            raise ConnectionResetError("the peer has gone")
        self._transport.write(data)
        await self._writable.wait()

    async def close(self) -> None:
        self._transport.close()


class Taken(web.StreamResponse):
    """For aiohttp, which wants to send something after every request: there is nothing to be sent any more."""

    def __init__(self) -> None:
        super().__init__(status=HTTPStatus.SWITCHING_PROTOCOLS)
        self._keep_alive = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None: ...


def check(asked: Request, tunnel: Tunnel) -> None:
    """Raises ApiError unless the client asks for this protocol."""
    if asked.headers.get("upgrade", "").lower() != tunnel.protocol.lower():
        raise bad_request(f"this is served over {tunnel.protocol} only: an upgrade to it is required")
    if asked.headers.get("content-length", "0") != "0" or "transfer-encoding" in asked.headers:
        raise bad_request("a request to switch protocols has no body")


def head(tunnel: Tunnel) -> bytes:
    fields = (("Connection", "Upgrade"), ("Upgrade", tunnel.protocol), ("Server", "podwire"), *tunnel.headers)
    lines = [f"{name}: {value}" for name, value in fields]
    return "\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines, "", ""]).encode()


async def converse(wire: Wire, tunnel: Tunnel) -> None:
    """Run the conversation, and close the connection however it ends."""
    try:
        await wire.write(head(tunnel))
        await tunnel.run(wire)
    except ConnectionError as error:
        log.debug("the peer of a tunnel vanished", extra={"error": str(error)})
    except Exception:
        log.exception("a conversation failed", extra={"protocol": tunnel.protocol})
    finally:
        with contextlib.suppress(OSError):
            await wire.close()
