"""Waits for conditions: the one helper of all tests that wait for another process, thread or task.

A condition that raises AssertionError or returns something false is tried again until the deadline. The deadline is
long because the machine may be busy with other tests; a condition that holds costs no more than one interval.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

WITHIN_SECONDS = 60.0
INTERVAL_SECONDS = 0.02

Explain = Callable[[], object]
"""Called when the deadline has passed; its result is part of the failure."""


class NotInTime(AssertionError):
    """The deadline has passed."""


class _Attempts:
    """Bookkeeping of one wait: the deadline, and why the last attempt failed."""

    def __init__(self, condition: Callable[[], object], within: float, explain: Explain | None) -> None:
        self._name = getattr(condition, "__qualname__", repr(condition))
        self._deadline = time.monotonic() + within
        self._within = within
        self._explain = explain
        self._last: object = None

    def failed(self, last: object) -> None:
        """Raises NotInTime once the deadline has passed."""
        self._last = last
        if time.monotonic() > self._deadline:
            more = f"; {self._explain()}" if self._explain else ""
            raise NotInTime(f"{self._name} did not hold within {self._within:g} s; last: {self._last!r}{more}")


def eventually(
    condition: Callable[[], T],
    within: float = WITHIN_SECONDS,
    *,
    interval: float = INTERVAL_SECONDS,
    explain: Explain | None = None,
) -> T:
    """Returns the first true result of a condition."""
    attempts = _Attempts(condition, within, explain)
    while True:
        try:
            result = condition()
        except AssertionError as error:
            attempts.failed(error)
        else:
            if result:
                return result
            attempts.failed(result)
        time.sleep(interval)


async def eventually_async(
    condition: Callable[[], Awaitable[T] | T],
    within: float = WITHIN_SECONDS,
    *,
    interval: float = INTERVAL_SECONDS,
    explain: Explain | None = None,
) -> T:
    """Returns the first true result of a condition, which may be a coroutine function; other tasks run in between."""
    attempts = _Attempts(condition, within, explain)
    while True:
        try:
            result: Any = condition()
            if inspect.isawaitable(result):
                result = await result
        except AssertionError as error:
            attempts.failed(error)
        else:
            if result:
                return result  # type: ignore[no-any-return]  # an awaited or a plain T
            attempts.failed(result)
        await asyncio.sleep(interval)
