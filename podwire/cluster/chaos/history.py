"""The last events of a run, for the report of a violation."""

import time
from collections import deque
from collections.abc import Callable

KEPT = 60
"""Events that a report shows."""


class History:
    """Remembers the last events with their times; `show` receives each at once."""

    def __init__(
        self, show: Callable[[str], None] = lambda _line: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._show = show
        self._clock = clock
        self._begin = clock()

    def add(self, event: str) -> None:
        line = f"{self._clock() - self._begin:9.3f}  {event}"
        self._lines.append(line)
        self._show(line)

    def lines(self) -> list[str]:
        return list(self._lines)
