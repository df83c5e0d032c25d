"""As a client, from HTTP to SPDY: a handshake, its refusal with the server's own words, and then the bytes."""

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
    """The client's end of a connection that has left HTTP. Implements podwire.interfaces.ByteStream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.version = ""
        """Of the conversation, as the server has chosen it; '' when it did not say."""

    async def read(self, limit: int) -> bytes:
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def shake_hands(self, path: str, host: str, versions: Iterable[str]) -> None:
        """Raises HandshakeRefused, ConnectionError."""
        head = [f"POST {path} HTTP/1.1", f"Host: {host}", "User-Agent: podwire", "Content-Length: 0"]
        head += [
            "Connection: Upgrade",
            f"Upgrade: {spdy.PROTOCOL}",
            *(f"{VERSION}: {each}" for each in versions),
            "",
            "",
        ]
        self._writer.write("\r\n".join(head).encode())
        try:
            told = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(told[0].split()[1])
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, ValueError) as error:
            raise ConnectionResetError("the peer does not answer as HTTP does") from error
        fields = {name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in told[1:])}
        if status != _SWITCHING:
            length = fields.get("content-length", "")
            raise HandshakeRefused(status, fields.get("content-type", "text/plain"), await self._rest(length))
        self.version = fields.get(VERSION.lower(), "")

    async def _rest(self, length: str) -> bytes:
        """A refusal's sentence, as far as it comes."""
        left, body = min(int(length), MAX_REFUSAL) if length.isdigit() else MAX_REFUSAL, b""
        while len(body) < left and (more := await self._reader.read(left - len(body))):
            body += more
        return body


async def dial(url: str, versions: Iterable[str], *, seconds: float, context: ssl.SSLContext | None = None) -> FarBytes:
    """SPDY to whoever serves this URL. Raises HandshakeRefused, OSError (TimeoutError is one)."""
    place = urlsplit(url)
    secure = place.scheme == "https"
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(
            place.hostname,
            place.port or (443 if secure else 80),
            ssl=(context or ssl.create_default_context()) if secure else None,
            limit=MAX_HEAD,
        )
        far = FarBytes(reader, writer)
        try:
            await far.shake_hands(f"{place.path or '/'}?{place.query}".rstrip("?"), place.netloc, versions)
        except BaseException:
            writer.close()
            raise
    return far
