"""A stopwatch for the steps of a piece of work, of one thread: time counts for the innermost step.

Without a stopwatch a step costs a look at a thread-local variable. Short-lived programs import this, so it imports
little.
"""

from threading import local
from time import perf_counter
from types import TracebackType
from typing import Self

REST = "rest"
"""Time outside of all steps."""


class Stopwatch:
    """Measures its block."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {REST: 0.0}
        self.times: dict[str, int] = {}
        """How often each step was taken."""
        self._name, self._since = REST, 0.0

    def __enter__(self) -> Self:
        self._since = perf_counter()
        _own.stopwatch = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.turn(REST)
        _own.stopwatch = None

    def turn(self, name: str) -> str:
        """Switches to a step; returns the previous one."""
        now, before = perf_counter(), self._name
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._name, self._since = name, now
        return before

    def begin(self, name: str) -> str:
        """Begins a step; returns the enclosing one."""
        self.times[name] = self.times.get(name, 0) + 1
        return self.turn(name)

    def end(self, _name: str, before: str, _error: BaseException | None) -> None:
        self.turn(before)


class _Own(local):
    stopwatch: Stopwatch | None = None


_own = _Own()


class step:  # noqa: N801 - used like a function
    """A block that counts as a step."""

    __slots__ = ("_before", "_name", "_stopwatch")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._stopwatch = _own.stopwatch
        if self._stopwatch is not None:
            self._before = self._stopwatch.begin(self._name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._stopwatch is not None:
            self._stopwatch.end(self._name, self._before, error)
