"""Upgrades a client connection from HTTP to SPDY."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from urllib.parse import urlsplit

from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.upgrading import VERSION
from podwire.transports.http_websocket_client import MAX_REFUSAL, HandshakeRefused

MAX_HEAD = 64 * 1024
_SWITCHING = 101


class FarBytes:
    """The client side of an upgraded connection. Implements podwire.interfaces.ByteStream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.version = ""
        """The protocol version that the server has chosen; '' without one."""

    async def read(self, limit: int) -> bytes:
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def handshake(self, path: str, host: str, versions: Iterable[str]) -> None:
        """Raises HandshakeRefused, ConnectionError."""
        head = [f"POST {path} HTTP/1.1", f"Host: {host}", "User-Agent: podwire", "Content-Length: 0"]
        head += [
            "Connection: Upgrade",
            f"Upgrade: {spdy.PROTOCOL}",
            *(f"{VERSION}: {version}" for version in versions),
            "",
            "",
        ]
        self._writer.write("\r\n".join(head).encode())
        try:
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(lines[0].split()[1])
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, ValueError) as error:
            raise ConnectionResetError("the peer does not speak HTTP") from error
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if status != _SWITCHING:
            length = fields.get("content-length", "")
            raise HandshakeRefused(status, fields.get("content-type", "text/plain"), await self._rest(length))
        self.version = fields.get(VERSION.lower(), "")

    async def _rest(self, length: str) -> bytes:
        """Reads the body of a rejection, as far as it comes."""
        left, body = min(int(length), MAX_REFUSAL) if length.isdigit() else MAX_REFUSAL, b""
        while len(body) < left and (more := await self._reader.read(left - len(body))):
            body += more
        return body


async def dial(url: str, versions: Iterable[str], *, seconds: float, context: ssl.SSLContext | None = None) -> FarBytes:
    """Opens SPDY to the server of this URL. Raises HandshakeRefused and OSError, of which TimeoutError is one."""
    target = urlsplit(url)
    secure = target.scheme == "https"
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(
            target.hostname,
            target.port or (443 if secure else 80),
            ssl=(context or ssl.create_default_context()) if secure else None,
            limit=MAX_HEAD,
        )
        with contextlib.ExitStack() as undo:
            undo.callback(writer.close)
            far = FarBytes(reader, writer)
            await far.handshake(f"{target.path or '/'}?{target.query}".rstrip("?"), target.netloc, versions)
            undo.pop_all()
    return far
