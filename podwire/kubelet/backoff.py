"""How long something that failed has to wait. Pure; times are monotonic."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Entry:
    delay: float
    since: float


class Backoff:
    """Per key: the first retry is free, then pauses double from `first` to `longest`; a quiet time makes it forget."""

    def __init__(self, first: float, longest: float, forget: float | None = None) -> None:
        self._first = first
        self._longest = longest
        self._forget = 2 * longest if forget is None else forget
        self._entries: dict[str, _Entry] = {}

    def until(self, key: str, failed_at: float) -> float:
        """Not before this time, given when it failed last."""
        entry = self._entries.get(key)
        if entry is None or failed_at - entry.since > self._forget:
            return failed_at
        return failed_at + entry.delay

    def delay(self, key: str) -> float:
        entry = self._entries.get(key)
        return entry.delay if entry is not None else 0.0

    def tried(self, key: str, now: float) -> None:
        """It is tried again now: should this fail too, the next pause is longer."""
        entry = self._entries.get(key)
        if entry is None or now - entry.since > self._forget:
            self._entries[key] = _Entry(self._first, now)
        else:
            entry.delay = min(entry.delay * 2, self._longest)
            entry.since = now

    def clear(self, key: str | None = None) -> None:
        """Forget one, or all."""
        if key is None:
            self._entries.clear()
        else:
            self._entries.pop(key, None)
