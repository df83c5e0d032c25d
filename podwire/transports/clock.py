"""The machine's clocks."""

import time


class SystemClock:
    """Implements podwire.interfaces.Clock."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
