"""The server side of SPDY over any byte stream: events of the client, with the protocol's rules enforced.

`SpdySocket` is exec and attach on top of it, presented as a socket with v5's messages.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from podwire.interfaces import ByteStream
from podwire.protocols.streaming import outcome, spdy
from podwire.protocols.streaming.channels import CLOSE, V4, V5, Channel, half_close

V3, V2 = "v3.channel.k8s.io", "v2.channel.k8s.io"
VERSIONS = (V4, V3, V2)
"""Versions of exec and attach over SPDY: v4 has the outcome as an object, v3 as text, v2 has no terminal sizes."""

READ = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SpdyLimits:
    """Limits of one connection."""

    streams: int = 1000
    """Streams open at once; further ones are refused."""
    close_seconds: float = 2.0
    """Time for the client to close after the last frame."""
    open_seconds: float = 30.0
    """From the handshake to the last required stream."""


Event = spdy.Opened | spdy.Data | spdy.Reset

_CHANNELS = {channel.name.lower(): channel for channel in Channel}


class Frames:
    """One connection. One task receives events; any task may send."""

    def __init__(self, wire: ByteStream, limits: SpdyLimits | None = None) -> None:
        self._wire = wire
        self.limits = limits or SpdyLimits()
        self._spdy = spdy.Connection()
        self._events: deque[spdy.Event] = deque()
        self._receiving: set[int] = set()
        self._sending: set[int] = set()
        """Streams that are half-open: for receiving, and for sending."""
        self._last = 0
        self._over = False
        self._blame = False

    async def next(self) -> Event | None:
        """Returns the next event; None when the client disconnects or violates the protocol. The caller accepts or
        refuses an opened stream."""
        while self._events or (not self._over and await self._read()):
            if self._events and (event := await self._dispatch(self._events.popleft())) is not None:
                return event
        return None

    async def _dispatch(self, event: spdy.Event) -> Event | None:
        """Returns the event if it concerns the caller; answers the others itself."""
        match event:
            case spdy.Ping(answer):
                await self._wire.write(answer)
            case spdy.Opened() if await self._admitted(event):
                return event
            case spdy.Data(stream, _, end) if await self._known(stream):
                self._end(stream, receiving=end)
                return event
            case spdy.Reset(stream):
                self._end(stream, receiving=True, sending=True)
                return event
        return None  # GOAWAY: the client closes when everything is sent

    async def _read(self) -> bool:
        """Reads; returns whether more events may come. Events before a protocol violation still count."""
        try:
            received = await self._wire.read(READ)
            self._over = not received
            for event in self._spdy.feed(received):
                self._events.append(event)
        except spdy.SpdyError:
            self._over = self._blame = True
        except OSError:
            self._over = True
        return bool(self._events) or not self._over

    async def _admitted(self, opened: spdy.Opened) -> bool:
        """Checks a new stream: odd, increasing numbers. A violation ends the connection."""
        stream = opened.stream
        if stream % 2 == 0 or stream <= self._last:
            self._over = self._blame = True
            self._events.clear()
            return False
        self._last = stream
        if len(self._receiving | self._sending) >= self.limits.streams:
            await self._wire.write(spdy.reset(stream, spdy.Why.REFUSED_STREAM))
            return False
        self._sending.add(stream)
        if not opened.end:
            self._receiving.add(stream)
        return True

    async def _known(self, stream: int) -> bool:
        """Returns whether a stream is open. Data for a stream that we reset is ignored, for an unknown one it is an
        error."""
        if stream > self._last or stream % 2 == 0:
            await self._wire.write(spdy.reset(stream, spdy.Why.INVALID_STREAM))
        return stream in self._receiving

    def _end(self, stream: int, *, receiving: bool = False, sending: bool = False) -> None:
        if receiving:
            self._receiving.discard(stream)
        if sending:
            self._sending.discard(stream)

    async def accept(self, stream: int) -> None:
        await self._wire.write(self._spdy.reply(stream))

    async def refuse(self, stream: int, why: spdy.Why = spdy.Why.PROTOCOL_ERROR) -> None:
        """Resets a stream."""
        self._end(stream, receiving=True, sending=True)
        await self._wire.write(spdy.reset(stream, why))

    async def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Sends with backpressure; drops data for a closed stream. Raises ConnectionError."""
        if stream not in self._sending:
            return
        self._end(stream, sending=end)
        await self._wire.write(b"".join(spdy.data(stream, data, end=end)))

    async def finish(self) -> None:
        """Ends every stream, sends GOAWAY, and waits briefly for the client to close; else bytes could be lost."""
        ends = [frame for stream in sorted(self._sending) for frame in spdy.data(stream, b"", end=True)]
        self._sending.clear()
        try:
            async with asyncio.timeout(self.limits.close_seconds):
                await self._wire.write(b"".join([*ends, spdy.go_away(self._last, blame=self._blame)]))
                while await self._wire.read(READ):
                    pass
        except OSError:  # TimeoutError is one
            pass
        finally:
            await self._wire.close()


class SpdySocket:
    """Exec or attach over SPDY. Implements podwire.protocols.k8sapi.server_side.Socket."""

    protocol = V5

    def __init__(self, frames: Frames, version: str) -> None:
        self._frames = frames
        self._version = version
        self._streams: dict[int, int] = {}
        self._waiting: deque[bytes] = deque()

    async def open(self, channels: Collection[Channel]) -> bool:
        """Returns whether the client opened a stream for each channel in time."""
        needed = {channel for channel in channels if channel != Channel.RESIZE or self._version != V2}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._frames.limits.open_seconds):
                while not needed <= self._streams.keys():
                    event = await self._frames.next()
                    if event is None:
                        return False
                    await self._take(event)
                return True
        return False

    async def receive(self) -> bytes | str | None:
        while not self._waiting:
            event = await self._frames.next()
            if event is None:
                return None
            await self._take(event)
        return self._waiting.popleft()

    async def _take(self, event: Event) -> None:
        channels = {stream: channel for channel, stream in self._streams.items()}
        match event:
            case spdy.Opened(stream, headers):
                channel = _CHANNELS.get(headers.get("streamtype", ""))
                if channel is None or channel in self._streams:
                    await self._frames.refuse(stream)
                    return
                self._streams[channel] = stream
                await self._frames.accept(stream)
                if event.end:
                    self._waiting.append(half_close(channel))
            case spdy.Data(stream, data, end) if stream in channels:
                if data:
                    self._waiting.append(bytes((channels[stream],)) + data)
                if end:
                    self._waiting.append(half_close(channels[stream]))
            case spdy.Reset(stream) if stream in channels:
                self._waiting.append(half_close(channels[stream]))

    async def send(self, data: bytes) -> None:
        """Sends a v5 message; drops one for a channel that is not connected."""
        channel, content = data[0] if data else CLOSE, data[1:]
        stream = self._streams.get(channel)
        if stream is None or not content:
            return
        if channel != Channel.ERROR:
            await self._frames.send(stream, content)
        else:
            await self._frames.send(stream, content if self._version == V4 else sentence(content), end=True)

    async def close(self, code: int = 1000) -> None:  # noqa: ARG002 - SPDY has no close code
        await self._frames.finish()


def sentence(status: bytes) -> bytes:
    """Words a Status as versions before v4 do: text for failures, empty for success."""
    ended = outcome.OutcomeReader().feed(status)
    return outcome.sentence(ended) if ended is not None else b""
