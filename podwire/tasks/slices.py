"""Long loops on the event loop, in slices: other tasks run in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE_SECONDS = 0.002
"""A request takes four or five turns of the event loop, and waits a slice in each for every long loop."""

CHECK_EVERY = 16
"""Items between two looks at the clock."""


async def in_slices(items: Iterable[T], seconds: float = SLICE_SECONDS) -> AsyncIterator[T]:
    """Yields the items; lets other tasks run whenever the loop's body has taken this long since the last time."""
    begun = time.perf_counter()
    for count, item in enumerate(items, 1):
        yield item
        if not count % CHECK_EVERY and time.perf_counter() - begun > seconds:
            await asyncio.sleep(0)
            begun = time.perf_counter()
