"""Server connections that are upgraded from HTTP: their bytes go to a tunnel unparsed."""

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
"""Bytes that may be buffered for the reader; beyond twice as many, reading from the peer pauses."""


class Wire:
    """The bytes of an upgraded connection. Implements podwire.interfaces.ByteStream."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reader = asyncio.StreamReader(limit=WAITING)
        self._reader.set_transport(transport)
        self._writable = asyncio.Event()
        self._writable.set()

    def feed(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def pause(self) -> None:
        """Called when the send buffer is full."""
        self._writable.clear()

    def resume(self) -> None:
        self._writable.set()

    def lost(self) -> None:
        self._reader.feed_eof()
        self._writable.set()

    async def read(self, limit: int) -> bytes:
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        """Writes with backpressure. Raises ConnectionError when the peer has disconnected."""
        if self._transport.is_closing():
            raise ConnectionResetError("the peer disconnected")
        self._transport.write(data)
        await self._writable.wait()

    async def close(self) -> None:
        self._transport.close()


class Taken(web.StreamResponse):
    """A response that sends nothing: aiohttp wants one after every request."""

    def __init__(self) -> None:
        super().__init__(status=HTTPStatus.SWITCHING_PROTOCOLS)
        self._keep_alive = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None: ...


def check(asked: Request, tunnel: Tunnel) -> None:
    """Raises ApiError unless the client requests an upgrade to this protocol."""
    if asked.headers.get("upgrade", "").lower() != tunnel.protocol.lower():
        raise bad_request(f"this is served over {tunnel.protocol} only: an upgrade to it is required")
    if asked.headers.get("content-length", "0") != "0" or "transfer-encoding" in asked.headers:
        raise bad_request("a request to switch protocols has no body")


def head(tunnel: Tunnel) -> bytes:
    fields = (("Connection", "Upgrade"), ("Upgrade", tunnel.protocol), ("Server", "podwire"), *tunnel.headers)
    lines = [f"{name}: {value}" for name, value in fields]
    return "\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines, "", ""]).encode()


async def converse(wire: Wire, tunnel: Tunnel) -> None:
    """Runs the tunnel and closes the connection however it ends."""
    try:
        await wire.write(head(tunnel))
        await tunnel.run(wire)
    except ConnectionError as error:
        log.debug("tunnel peer disconnected early", extra={"error": str(error)})
    except Exception:
        log.exception("tunnel handler failed unexpectedly", extra={"protocol": tunnel.protocol})
    finally:
        with contextlib.suppress(OSError):
            await wire.close()
