"""Things to do when enough time has passed: time during which this process was awake.

Whoever was stopped for a minute (a suspended laptop, SIGSTOP, a debugger) has heard nobody meanwhile, and nobody's
silence in that minute means anything. So a reading never counts more than `LONGEST` seconds since the one before, and
while anything is to be waited for, there is a reading at least every `BEAT` seconds.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from podwire.interfaces import Clock

Key = TypeVar("Key", bound=Hashable)

BEAT, LONGEST = 5.0, 10.0


class Alarms(Generic[Key]):
    """One for each key; setting it anew replaces it."""

    def __init__(self, clock: Clock, ring: Callable[[Key], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._read = clock.monotonic()
        self._awake = 0.0
        self._set: dict[Key, float] = {}
        self._order: list[tuple[float, int, Key]] = []
        self._count = 0
        self._sooner = asyncio.Event()

    def now(self) -> float:
        """Seconds awake."""
        read = self._clock.monotonic()
        self._awake += min(read - self._read, LONGEST)
        self._read = read
        return self._awake

    def set(self, key: Key, when: float) -> None:
        if self._set.get(key) == when:
            return
        self._set[key] = when
        self._count += 1  # keys need not be comparable
        heapq.heappush(self._order, (when, self._count, key))
        if self._order[0][1] == self._count:
            self._sooner.set()

    def cancel(self, key: Key) -> None:
        self._set.pop(key, None)

    def look(self) -> float | None:
        """Ring what is due; returns the seconds until the next look, None when there is nothing to wait for."""
        now = self.now()
        while self._order:
            when, _, key = self._order[0]
            if self._set.get(key) != when:  # replaced or cancelled
                heapq.heappop(self._order)
            elif when <= now:
                heapq.heappop(self._order)
                del self._set[key]
                self._ring(key)
            else:
                return min(BEAT, when - now)
        return None

    async def run(self) -> None:
        """Ring in time, until cancelled."""
        while True:
            self._sooner.clear()
            wait = self.look()
            try:
                async with asyncio.timeout(wait):
                    await self._sooner.wait()
            except TimeoutError:
                continue
