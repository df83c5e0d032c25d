"""Timers that count only the time during which this process ran.

A process that was stopped for a minute (a suspended laptop, SIGSTOP, a debugger) received no heartbeats meanwhile, so
their absence means nothing. A clock reading therefore never counts more than `MAX_STEP` seconds since the previous one,
and while a timer is set, the clock is read at least every `MAX_WAIT` seconds.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from podwire.interfaces import Clock

Key = TypeVar("Key", bound=Hashable)

MAX_WAIT, MAX_STEP = 5.0, 10.0


class Timers(Generic[Key]):
    """One timer per key; setting it again replaces it."""

    def __init__(self, clock: Clock, on_due: Callable[[Key], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._read = clock.monotonic()
        self._awake = 0.0
        self._set: dict[Key, float] = {}
        self._order: list[tuple[float, int, Key]] = []
        self._count = 0
        self._sooner = asyncio.Event()

    def now(self) -> float:
        """Returns the seconds during which the process ran."""
        read = self._clock.monotonic()
        self._awake += min(read - self._read, MAX_STEP)
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

    def fire_due(self) -> float | None:
        """Fires due timers; returns the seconds until the next reading, None when no timer is set."""
        now = self.now()
        while self._order:
            when, _, key = self._order[0]
            if self._set.get(key) != when:  # replaced or cancelled
                heapq.heappop(self._order)
            elif when <= now:
                heapq.heappop(self._order)
                del self._set[key]
                self._on_due(key)
            else:
                return min(MAX_WAIT, when - now)
        return None

    async def run(self) -> None:
        """Fires timers until cancelled."""
        while True:
            self._sooner.clear()
            wait = self.fire_due()
            try:
                async with asyncio.timeout(wait):
                    await self._sooner.wait()
            except TimeoutError:
                continue
