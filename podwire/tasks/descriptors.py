"""Waits for file descriptors on the event loop, so that pipes, terminals and pidfds occupy no thread."""

import asyncio
import os

CHUNK = 32 * 1024


async def readable(descriptor: int) -> None:
    """Waits until there is something to read, an end, or, for a pidfd, an exit."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(descriptor, _set, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def read(descriptor: int) -> bytes:
    """Reads from a non-blocking descriptor; empty at its end, which a terminal reports as an error."""
    while True:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:
            await readable(descriptor)
        except OSError:
            return b""


async def write(descriptor: int, data: bytes) -> None:
    """Writes all of it to a non-blocking descriptor. Raises OSError when the other side is gone."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            await writable(descriptor)
