"""Long loops on the event loop, in slices: other tasks run in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE_SECONDS = 0.002
"""A request takes four or five turns of the event loop, and waits a slice in each for every long loop."""


class Turns:
    """For loops over what arrives: lets other tasks run whenever the loop has taken this long since the last time."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._begun = time.perf_counter()

    async def next(self) -> None:
        """To be called after each item."""
        if time.perf_counter() - self._begun > self._seconds:
            await asyncio.sleep(0)
            self._begun = time.perf_counter()


async def in_slices(items: Iterable[T], seconds: float = SLICE_SECONDS) -> AsyncIterator[T]:
    """Yields the items; lets other tasks run whenever the loop's body has taken this long since the last time.

    The clock is read after each item: one may take as long as a thousand others.
    """
    begun = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - begun > seconds:
            await asyncio.sleep(0)
            begun = time.perf_counter()
