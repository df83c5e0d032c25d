"""Port-forward over SPDY: any number of connections of one client.

Each connection is a pair of streams with the same request id: one for its bytes, one for an error text.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field

from podwire.protocols.streaming import spdy
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.streaming.port_connection import Connect, InputQueue, forward
from podwire.transports.spdy_server import Frames

DATA, ERROR = "data", "error"


@dataclass(slots=True)
class _Pair:
    """One connection; either of its streams may come first."""

    port: int
    queue: InputQueue
    streams: dict[str, int] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)


class SpdyForwarder:
    """Serves one client."""

    def __init__(self, frames: Frames, pod: str, connect: Connect, limits: RuntimeLimits | None = None) -> None:
        self._frames = frames
        self._pod = pod
        self._connect = connect
        self._limits = limits or RuntimeLimits()
        self._pairs: dict[str, _Pair] = {}
        self._by_data: dict[int, _Pair] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Forwards until the client leaves; its connections end with it."""
        try:
            async with asyncio.TaskGroup() as connections:
                while (event := await self._frames.next()) is not None:
                    match event:
                        case spdy.Opened():
                            await self._open(event, connections)
                        case spdy.Data(stream, data, end) if stream in self._by_data:
                            await self._put(self._by_data[stream], data, end=end)
                        case spdy.Reset(stream) if stream in self._by_data:
                            self._by_data[stream].queue.abandon()
                for task in self._tasks:
                    task.cancel()
        finally:
            await self._frames.finish()

    async def _open(self, opened: spdy.Opened, connections: asyncio.TaskGroup) -> None:
        kind, port = opened.headers.get("streamtype", ""), _port(opened.headers.get("port", ""))
        key = _request(opened, kind)
        pair = self._pairs.get(key)
        if kind not in (DATA, ERROR) or not port or (pair and (kind in pair.streams or pair.port != port)):
            await self._frames.refuse(opened.stream)
            return
        if pair is None:
            pair = self._pairs[key] = _Pair(port, InputQueue(self._limits))
            task = connections.create_task(self._connection(key, pair), name=f"forward to port {port}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        pair.streams[kind] = opened.stream
        await self._frames.accept(opened.stream)
        if kind == DATA:
            self._by_data[opened.stream] = pair
            await self._put(pair, b"", end=opened.end)
        if len(pair.streams) == 2:
            pair.complete.set()

    async def _put(self, pair: _Pair, data: bytes, *, end: bool) -> None:
        if data:
            await pair.queue.put(data)
        if end:
            await pair.queue.put(b"")

    async def _connection(self, key: str, pair: _Pair) -> None:
        """Forwards one connection, from its first stream to the end of both; its errors end it alone."""
        try:
            async with asyncio.timeout(self._limits.stream_pair):
                await pair.complete.wait()
            await self._forward(pair)
        except OSError as error:  # TimeoutError is one: the other stream did not come
            text = f"error forwarding port {pair.port} to pod {self._pod}, uid : {error}"
            await self._end(pair, text if str(error) else f"{text}timed out waiting for its other stream")
        finally:
            pair.queue.abandon()
            del self._pairs[key]
            self._by_data.pop(pair.streams.get(DATA, 0), None)

    async def _forward(self, pair: _Pair) -> None:
        async def send(data: bytes) -> None:
            await self._frames.send(pair.streams[DATA], data)

        streams = await self._connect(pair.port)
        await forward(streams, pair.queue, send, lambda: self._end(pair), self._limits)

    async def _end(self, pair: _Pair, text: str = "") -> None:
        """Ends both streams: kubectl waits for the second as soon as the first has ended."""
        with contextlib.suppress(OSError):
            for kind, last in ((DATA, b""), (ERROR, text.encode("utf-8", "backslashreplace"))):
                if kind in pair.streams:
                    await self._frames.send(pair.streams[kind], last, end=True)


def _port(text: str) -> int:
    """Returns 0 for what is not a port."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0
    return number if number < 65536 else 0


def _request(opened: spdy.Opened, kind: str) -> str:
    """Returns what pairs two streams: the request id, or, for old clients, the number of the first of the two."""
    return opened.headers.get("requestid") or f"stream {opened.stream if kind == ERROR else opened.stream - 2}"
