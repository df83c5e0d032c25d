"""Exec and attach over SPDY, as every runtime but ours offers them; to whoever uses it, a socket with v5's messages.

Runtimes speak WebSocket, too, but only up to v4, in which the end of an input cannot be told: `kubectl cp` and every
command that reads to the end would never end.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Iterable
from urllib.parse import urlsplit

from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.channels import CLOSE, V4, V5
from podwire.protocols.streaming.remote_command import Channel
from podwire.transports.http_websocket_client import MAX_REFUSAL, HandshakeRefused

READ = 64 * 1024
MAX_HEAD = 64 * 1024
_SWITCHING = 101
_NAMES = {each: each.name.lower() for each in Channel}


class FarStreams:
    """A connection with one stream for each channel. Implements podwire.protocols.k8sapi.server_side.Socket."""

    protocol = V5

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._spdy = spdy.Client()
        self._streams: dict[int, int] = {}
        self._messages: deque[bytes] = deque()
        self._outcome = False
        self._over = False

    @property
    def ended_well(self) -> bool:
        """Whether the runtime has told how it ended."""
        return self._outcome

    async def open(self, channels: Iterable[Channel]) -> None:
        for number, channel in enumerate(channels):
            stream = 2 * number + 1
            self._streams[channel] = stream
            self._writer.write(self._spdy.open(stream, {"streamType": _NAMES[channel]}))
        await self._writer.drain()

    async def receive(self) -> bytes | str | None:
        while not self._messages and not self._over:
            try:
                received = await self._reader.read(READ)
                self._take(received)
            except (OSError, spdy.SpdyError):
                received = b""
            self._over = not received
        return self._messages.popleft() if self._messages else None

    def _take(self, received: bytes) -> None:
        channels = {stream: channel for channel, stream in self._streams.items()}
        for event in self._spdy.feed(received):
            match event:
                case spdy.Data(stream, data) if data and stream in channels:
                    self._outcome = self._outcome or channels[stream] == Channel.ERROR
                    self._messages.append(bytes((channels[stream],)) + data)
                case spdy.Ping(answer):
                    self._writer.write(answer)

    async def send(self, data: bytes) -> None:
        """A message as v5 has it; one for a channel that is not connected goes nowhere."""
        ends = data[:1] == bytes((CLOSE,))
        channel = data[1] if ends and len(data) > 1 else data[0] if data else CLOSE
        stream = self._streams.get(channel)
        if stream is None:
            return
        for frame in spdy.data(stream, b"" if ends else data[1:], end=ends):
            self._writer.write(frame)
        await self._writer.drain()

    async def close(self, code: int = 1000) -> None:  # noqa: ARG002 - SPDY has no word for why
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def dial(
    url: str, channels: Iterable[Channel], *, seconds: float, context: ssl.SSLContext | None = None
) -> FarStreams:
    """The conversation that waits at this URL. Raises HandshakeRefused, OSError (TimeoutError is one)."""
    place = urlsplit(url)
    secure = place.scheme == "https"
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(
            place.hostname,
            place.port or (443 if secure else 80),
            ssl=(context or ssl.create_default_context()) if secure else None,
            limit=MAX_HEAD,
        )
        far = FarStreams(reader, writer)
        try:
            await _shake_hands(reader, writer, f"{place.path}?{place.query}".rstrip("?"), place.netloc)
            await far.open(channels)
        except BaseException:
            writer.close()
            raise
    return far


async def _shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, host: str) -> None:
    head = [f"POST {path} HTTP/1.1", f"Host: {host}", "User-Agent: podwire", "Content-Length: 0"]
    head += ["Connection: Upgrade", f"Upgrade: {spdy.PROTOCOL}", f"X-Stream-Protocol-Version: {V4}", "", ""]
    writer.write("\r\n".join(head).encode())
    try:
        told = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(told[0].split()[1])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, ValueError) as error:
        raise ConnectionResetError("the runtime's streaming server does not answer as HTTP does") from error
    if status == _SWITCHING:
        return
    fields = {name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in told[1:])}
    length = fields.get("content-length", "")
    body = await reader.read(min(int(length), MAX_REFUSAL) if length.isdigit() else MAX_REFUSAL)
    raise HandshakeRefused(status, fields.get("content-type", "text/plain"), body)
