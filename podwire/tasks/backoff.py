"""Back-off: how long to wait before a failed action is tried again. No clock, no sleep: times are handed in."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Pauses:
    """Exponential pauses of one action: `first`, twice that, … up to `longest`, until it succeeds.

    `jitter` is the part of a pause, 0 to 1, that `random` (0 to 1) decides on: with 0.5 a pause is 50 to 100 % of its
    nominal length. Without it the pauses are the same every time.
    """

    first: float
    longest: float
    jitter: float = 0.0
    random: Callable[[], float] | None = None
    failures: int = 0

    def next(self) -> float:
        """The action failed: how many seconds to wait now."""
        nominal = min(self.longest, self.first * 2.0 ** min(self.failures, 64))
        self.failures += 1
        return nominal * (1 - self.jitter + self.jitter * self.random()) if self.random else nominal

    def reset(self) -> None:
        """The action succeeded."""
        self.failures = 0


@dataclass(slots=True)
class _Entry:
    delay: float
    since: float


class Backoff:
    """By key, as kubelets back off: the first retry is free, then pauses double from `first` to `longest`.

    A key that has not been retried for `forget` seconds (twice `longest` by default) starts anew. Times are monotonic.
    """

    def __init__(self, first: float, longest: float, forget: float | None = None) -> None:
        self._first = first
        self._longest = longest
        self._forget = 2 * longest if forget is None else forget
        self._entries: dict[str, _Entry] = {}

    def until(self, key: str, failed_at: float) -> float:
        """The earliest time of a retry, given when the action failed last."""
        entry = self._entries.get(key)
        if entry is None or failed_at - entry.since > self._forget:
            return failed_at
        return failed_at + entry.delay

    def delay(self, key: str) -> float:
        """The pause that a failure would cause now."""
        entry = self._entries.get(key)
        return entry.delay if entry is not None else 0.0

    def tried(self, key: str, now: float) -> None:
        """The action is tried again now: if it fails, too, the next pause is longer."""
        entry = self._entries.get(key)
        if entry is None or now - entry.since > self._forget:
            self._entries[key] = _Entry(self._first, now)
        else:
            entry.delay = min(entry.delay * 2, self._longest)
            entry.since = now

    def clear(self, key: str | None = None) -> None:
        """Forget one key, or all."""
        if key is None:
            self._entries.clear()
        else:
            self._entries.pop(key, None)
