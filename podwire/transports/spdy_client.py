"""Exec and attach over SPDY, as every runtime but ours offers them; to whoever uses it, a socket with v5's messages.

Runtimes speak WebSocket, too, but only up to v4, in which the end of an input cannot be told: `kubectl cp` and every
command that reads to the end would never end.
"""

from collections import deque
from collections.abc import Iterable

from podwire.interfaces import ByteStream
from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.channels import CLOSE, V4, V5
from podwire.protocols.streaming.remote_command import Channel
from podwire.transports import http_switch

READ = 64 * 1024
_NAMES = {each: each.name.lower() for each in Channel}


class FarStreams:
    """A connection with one stream for each channel. Implements podwire.protocols.k8sapi.server_side.Socket."""

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
        """Whether the runtime has told how it ended."""
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
                    self._over = True  # all is said: who waits for the other to close waits for us
                case spdy.Ping(answer):
                    await self._wire.write(answer)

    async def send(self, data: bytes) -> None:
        """A message as v5 has it; one for a channel that is not connected goes nowhere."""
        ends = data[:1] == bytes((CLOSE,))
        channel = data[1] if ends and len(data) > 1 else data[0] if data else CLOSE
        stream = self._streams.get(channel)
        if stream is not None:
            await self._wire.write(b"".join(spdy.data(stream, b"" if ends else data[1:], end=ends)))

    async def close(self, code: int = 1000) -> None:  # noqa: ARG002 - SPDY has no word for why
        await self._wire.close()


async def dial(url: str, channels: Iterable[Channel], *, seconds: float) -> FarStreams:
    """The conversation that waits at this URL. Raises HandshakeRefused, OSError (TimeoutError is one)."""
    wire = await http_switch.dial(url, (V4,), seconds=seconds)
    far = FarStreams(wire)
    try:
        await far.open(channels)
    except BaseException:
        await far.close()
        raise
    return far
