"""Collects calls for one key during a moment, so that a hundred changes of its dependents cost one reconciliation."""

import asyncio
from collections.abc import Callable


class Batches:
    """Calls `add(key)` once, some time after the first of several calls."""

    def __init__(self, seconds: float, add: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._add = add
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def later(self, key: str) -> None:
        if key not in self._timers:
            self._timers[key] = asyncio.get_running_loop().call_later(self._seconds, self._due, key)

    def _due(self, key: str) -> None:
        del self._timers[key]
        self._add(key)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
