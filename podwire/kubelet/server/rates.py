"""Rates of counters: processor time in nanoseconds becomes nanocores. Pure.

Nobody measures while nobody asks: a rate is the increase since the last time that somebody asked.
"""

LONGEST = 120.0
"""Seconds after which an earlier reading says nothing of the present."""
SHORTEST = 0.2
"""Seconds below which a rate is noise; the last one is repeated."""

SECOND = 1_000_000_000


class Rates:
    """The last readings by key."""

    def __init__(self) -> None:
        self._readings: dict[str, tuple[int, int, int | None]] = {}
        """When, the counter, and the rate until then."""

    def knows(self, key: str, now: int) -> bool:
        """Returns whether a reading of now has a rate."""
        reading = self._readings.get(key)
        return reading is not None and SHORTEST * SECOND <= now - reading[0] <= LONGEST * SECOND

    def rate(self, key: str, now: int, counter: int) -> int | None:
        """Returns the increase per second and keeps the reading. None for the first one, and for a counter that was
        reset."""
        before = self._readings.get(key)
        rate = None
        if before is not None:
            then, value, last = before
            if now - then < SHORTEST * SECOND:
                return last
            if now - then <= LONGEST * SECOND and counter >= value:
                rate = (counter - value) * SECOND // (now - then)
        self._readings[key] = now, counter, rate
        return rate

    def keep(self, keys: set[str]) -> None:
        """Forgets all other keys."""
        for key in self._readings.keys() - keys:
            del self._readings[key]
