"""The events of a run, and those of them that explain a violation."""

import re
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

KEPT = 5000
SHOWN = 60
"""Events that a report shows, at most."""
_WORD = re.compile(r"[\w.-]+")


class _Event(NamedTuple):
    subject: str
    line: str


class History:
    """Remembers events with their times; `show` receives each at once."""

    def __init__(
        self, show: Callable[[str], None] = lambda _line: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._events: deque[_Event] = deque(maxlen=KEPT)
        self._show = show
        self._clock = clock
        self._begin = clock()

    def add(self, event: str, subject: str = "") -> None:
        """`subject` is the name of the object that the event is about; empty for faults and rounds."""
        line = f"{self._clock() - self._begin:9.3f}  {event}"
        self._events.append(_Event(subject, line))
        self._show(line)

    def lines(self, violation: str = "") -> list[str]:
        """Returns the last events that explain a violation: those of the objects that it names, and all faults since
        the first of them. Without such an object, all events."""
        named = {event.subject for event in self._events if event.subject} & {*_WORD.findall(violation)}
        if not named:
            return [event.line for event in self._events][-SHOWN:]
        begin = next(number for number, event in enumerate(self._events) if event.subject in named)
        events = [event for event in [*self._events][begin:] if event.subject in ("", *named)]
        return [event.line for event in events][-SHOWN:]
