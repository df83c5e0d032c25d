"""Port-forward: connections to ports inside a pod's network namespace, as many as a client opens over SPDY.

Each connection is a pair of streams with the same request id: one for its bytes, one for what went wrong.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field

from podwire.protocols.streaming import spdy
from podwire.runtime.streaming.port_connection import InputQueue, Reach, carry
from podwire.transports.spdy_server import Frames

PAIR_SECONDS = 30.0
"""From one stream of a pair to the other."""
DATA, ERROR = "data", "error"


@dataclass(slots=True)
class _Pair:
    """One connection, of which either stream may come first."""

    port: int
    streams: dict[str, int] = field(default_factory=dict)
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    inflow: InputQueue = field(default_factory=InputQueue)


class SpdyForwarder:
    """One client."""

    def __init__(self, frames: Frames, pod: str, reach: Reach) -> None:
        self._frames = frames
        self._pod = pod
        self._reach = reach
        self._pairs: dict[str, _Pair] = {}
        self._by_data: dict[int, _Pair] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the client goes; its connections go with it."""
        try:
            async with asyncio.TaskGroup() as connections:
                while (event := await self._frames.next()) is not None:
                    match event:
                        case spdy.Opened():
                            await self._open(event, connections)
                        case spdy.Data(stream, data, end) if stream in self._by_data:
                            await self._put(self._by_data[stream], data, end=end)
                        case spdy.Reset(stream) if stream in self._by_data:
                            self._by_data[stream].inflow.give_up()
                for each in self._tasks:
                    each.cancel()
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
            pair = self._pairs[key] = _Pair(port)
            task = connections.create_task(self._connection(key, pair), name=f"forward to port {port}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        pair.streams[kind] = opened.stream
        await self._frames.accept(opened.stream)
        if kind == DATA:
            self._by_data[opened.stream] = pair
            await self._put(pair, b"", end=opened.end)
        if len(pair.streams) == 2:
            pair.whole.set()

    async def _put(self, pair: _Pair, data: bytes, *, end: bool) -> None:
        if data:
            await pair.inflow.put(data)
        if end:
            await pair.inflow.put(b"")

    async def _connection(self, key: str, pair: _Pair) -> None:
        """From the first of the two streams to the end of both; what goes wrong ends this one alone."""
        try:
            async with asyncio.timeout(PAIR_SECONDS):
                await pair.whole.wait()
            await self._carry(pair)
        except OSError as error:  # TimeoutError is one: the other stream did not come
            text = f"error forwarding port {pair.port} to pod {self._pod}, uid : {error}"
            await self._end(pair, text if str(error) else f"{text}timed out waiting for its other stream")
        finally:
            pair.inflow.give_up()
            del self._pairs[key]
            self._by_data.pop(pair.streams.get(DATA, 0), None)

    async def _carry(self, pair: _Pair) -> None:
        async def send(data: bytes) -> None:
            await self._frames.send(pair.streams[DATA], data)

        await carry(await self._reach(pair.port), pair.inflow, send, lambda: self._end(pair))

    async def _end(self, pair: _Pair, text: str = "") -> None:
        """Both streams: kubectl waits for the second as soon as the first has ended, whatever it could still send."""
        with contextlib.suppress(OSError):
            for kind, last in ((DATA, b""), (ERROR, text.encode("utf-8", "backslashreplace"))):
                if kind in pair.streams:
                    await self._frames.send(pair.streams[kind], last, end=True)


def _port(text: str) -> int:
    """0 when it is none."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0
    return number if number < 65536 else 0


def _request(opened: spdy.Opened, kind: str) -> str:
    """What pairs two streams: the id that clients give, or, before they did, the number of the first of the two."""
    return opened.headers.get("requestid") or f"stream {opened.stream if kind == ERROR else opened.stream - 2}"
