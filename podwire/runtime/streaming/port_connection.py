"""One forwarded connection: copies bytes between a client and a port of a pod."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.ports import Streams

CHUNK = 32 * 1024

Connect = Callable[[int], Awaitable[Streams]]
"""Connects to a port of the pod. Raises OSError, whose text the client gets."""


class InputQueue:
    """Bytes of a client for one port, until their end or until the connection is abandoned."""

    def __init__(self, limits: RuntimeLimits | None = None) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue((limits or RuntimeLimits()).port_queue)
        self.abandoned = asyncio.Event()

    async def put(self, chunk: bytes) -> None:
        """Adds a chunk; empty for the end. Waits while the port is slow, but not for an abandoned one."""
        if not self.abandoned.is_set():
            await self._chunks.put(chunk)

    def abandon(self) -> None:
        """Discards everything, and wakes those that wait in `put`."""
        self.abandoned.set()
        while not self._chunks.empty():
            self._chunks.get_nowait()

    async def write_to(self, writer: asyncio.StreamWriter) -> None:
        """Writes all chunks, then ends the direction; a port that reads no more may still send."""
        with contextlib.suppress(OSError):
            while chunk := await self._chunks.get():
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()


async def forward(
    streams: Streams,
    queue: InputQueue,
    send: Callable[[bytes], Awaitable[None]],
    on_end: Callable[[], Awaitable[None]],
    limits: RuntimeLimits,
) -> None:
    """Copies both ways until both have ended, or the client abandons it. `on_end` reports the port's end to the client.

    Raises OSError when the port breaks the connection.
    """
    reader, writer = streams
    writing = asyncio.create_task(queue.write_to(writer), name="to the port")
    reading = asyncio.create_task(_copy(reader, send), name="from the port")
    abandoned = asyncio.create_task(queue.abandoned.wait(), name="abandoned")
    try:
        await asyncio.wait((reading, abandoned), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
            await on_end()
            await asyncio.wait((writing, abandoned), return_when=asyncio.FIRST_COMPLETED)
            writer.close()
            with contextlib.suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(limits.port_close):  # for the port to read what it was sent last
                    await writer.wait_closed()
    finally:
        for task in (writing, reading, abandoned):
            task.cancel()
        await asyncio.gather(writing, reading, abandoned, return_exceptions=True)
        writer.transport.abort()  # a port that never reads would keep unsent data, and us, for ever
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, send: Callable[[bytes], Awaitable[None]]) -> None:
    while data := await reader.read(CHUNK):
        await send(data)
