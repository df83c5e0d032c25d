"""Exec and attach over SPDY, which every runtime offers, presented as a socket with v5's messages.

Other runtimes support WebSockets only up to v4, which cannot signal the end of stdin: `kubectl cp` and every command
that reads to the end would hang.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import AsyncExitStack

from podwire.interfaces import ByteStream
from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.channels import CLOSE, V4, V5, Channel
from podwire.transports import http_upgrade_client

READ = 64 * 1024
_NAMES = {channel: channel.name.lower() for channel in Channel}


class FarStreams:
    """A connection with one stream per channel. Implements podwire.protocols.k8sapi.server_side.Socket."""

    protocol = V5

    def __init__(self, wire: ByteStream) -> None:
        self._wire = wire
        self._spdy = spdy.Connection()
        self._streams: dict[int, int] = {}
        self._messages: deque[bytes] = deque()
        self._outcome = False
        self._over = False

    @property
    def ended_well(self) -> bool:
        """Whether the runtime sent the outcome."""
        return self._outcome

    async def open(self, channels: Iterable[Channel]) -> None:
        frames = []
        for number, channel in enumerate(channels):
            stream = 2 * number + 1
            self._streams[channel] = stream
            frames.append(self._spdy.open(stream, {"streamType": _NAMES[channel]}))
        await self._wire.write(b"".join(frames))

    async def receive(self) -> bytes | str | None:
        while not self._messages and not self._over:
            try:
                received = await self._wire.read(READ)
                await self._take(received)
            except (OSError, spdy.SpdyError):
                received = b""
            self._over = self._over or not received
        return self._messages.popleft() if self._messages else None

    async def _take(self, received: bytes) -> None:
        channels = {stream: channel for channel, stream in self._streams.items()}
        for event in self._spdy.feed(received):
            match event:
                case spdy.Data(stream, data) if data and stream in channels:
                    self._outcome = self._outcome or channels[stream] == Channel.ERROR
                    self._messages.append(bytes((channels[stream],)) + data)
                case spdy.GoAway() if self._outcome:
                    self._over = True  # the outcome has arrived, and the runtime waits for us to close
                case spdy.Ping(answer):
                    await self._wire.write(answer)

    async def send(self, data: bytes) -> None:
        """Sends a v5 message; drops one for a channel that is not connected."""
        ends = data[:1] == bytes((CLOSE,))
        channel = data[1] if ends and len(data) > 1 else data[0] if data else CLOSE
        stream = self._streams.get(channel)
        if stream is not None:
            await self._wire.write(b"".join(spdy.data(stream, b"" if ends else data[1:], end=ends)))

    async def close(self, code: int = 1000) -> None:  # noqa: ARG002 - SPDY has no close code
        await self._wire.close()


async def dial(url: str, channels: Iterable[Channel], *, seconds: float) -> FarStreams:
    """Opens the exec or attach session at this URL. Raises HandshakeRefused and OSError, of which TimeoutError is
    one."""
    wire = await http_upgrade_client.dial(url, (V4,), seconds=seconds)
    async with AsyncExitStack() as undo:
        far = FarStreams(wire)
        undo.push_async_callback(far.close)
        await far.open(channels)
        undo.pop_all()
    return far
