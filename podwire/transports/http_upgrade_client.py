"""Upgrades a client connection from HTTP to another protocol: to SPDY, or to the one that a forwarded client wants."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.upgrading import VERSION
from podwire.transports.http_websocket_client import MAX_REFUSAL, HandshakeRefused
from podwire.transports.tls_reading import keep_last_bytes

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

    async def handshake(self, head: Sequence[str]) -> list[tuple[str, str]]:
        """Sends the lines of a request; returns the headers of the answer. Raises HandshakeRefused, ConnectionError."""
        self._writer.write("\r\n".join([*head, "", ""]).encode("utf-8", "surrogateescape"))
        try:
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(lines[0].split()[1])
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, ValueError) as error:
            raise ConnectionResetError("the peer does not speak HTTP") from error
        fields = [
            (name.strip(), value.strip()) for name, colon, value in (x.partition(":") for x in lines[1:]) if colon
        ]
        by_name = {name.lower(): value for name, value in fields}
        if status != _SWITCHING:
            length = by_name.get("content-length", "")
            raise HandshakeRefused(status, by_name.get("content-type", "text/plain"), await self._rest(length))
        self.version = by_name.get(VERSION.lower(), "")
        return fields

    async def _rest(self, length: str) -> bytes:
        """Reads the body of a rejection, as far as it comes."""
        left, body = min(int(length), MAX_REFUSAL) if length.isdigit() else MAX_REFUSAL, b""
        while len(body) < left and (more := await self._reader.read(left - len(body))):
            body += more
        return body


async def dial(url: str, versions: Iterable[str], *, seconds: float, context: ssl.SSLContext | None = None) -> FarBytes:
    """Opens SPDY to the server of this URL. Raises HandshakeRefused and OSError, of which TimeoutError is one."""
    headers = [("Host", urlsplit(url).netloc), ("User-Agent", "podwire"), ("Content-Length", "0")]
    headers += [("Connection", "Upgrade"), ("Upgrade", spdy.PROTOCOL), *((VERSION, version) for version in versions)]
    far, _ = await switch(url, "POST", headers, seconds=seconds, context=context)
    return far


async def switch(
    url: str,
    method: str,
    headers: Sequence[tuple[str, str]],
    *,
    seconds: float,
    context: ssl.SSLContext | None = None,
    server_name: str = "",
) -> tuple[FarBytes, list[tuple[str, str]]]:
    """Asks the server of this URL to switch protocols; returns the connection and the headers of the answer.

    Raises HandshakeRefused and OSError, of which TimeoutError is one.
    """
    target = urlsplit(url)
    secure = target.scheme == "https"
    path = f"{target.path or '/'}?{target.query}" if target.query else target.path or "/"
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(
            target.hostname,
            target.port or (443 if secure else 80),
            ssl=(context or ssl.create_default_context()) if secure else None,
            server_hostname=(server_name or None) if secure else None,
            limit=MAX_HEAD,
        )
        with contextlib.ExitStack() as undo:
            undo.callback(writer.close)
            keep_last_bytes(writer.transport)
            far = FarBytes(reader, writer)
            fields = await far.handshake(
                [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
            )
            undo.pop_all()
    return far, fields
