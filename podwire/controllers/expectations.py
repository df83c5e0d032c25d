"""Expectations: what a controller has created and deleted and the feed has not reported yet.

A controller that decided on the feed alone would create a pod twice, because its own creation is reported after the
request is answered. So it counts the creations and names the deletions that it asks for, and decides again when all of
them were reported. What is never reported (a deletion that came first, an owner that changed) expires.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from podwire.interfaces import Clock

EXPIRY = 300.0
"""Seconds after which an expectation is dropped."""


@dataclass(slots=True)
class _Expected:
    since: float
    creations: int = 0
    deletions: set[str] = field(default_factory=set)


class Expectations:
    """Expected creations and deletions by the uid of their owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: dict[str, _Expected] = {}

    def expect(self, owner: str, *, creations: int = 0, deletions: Iterable[str] = ()) -> None:
        """Replaces the expectations of an owner; call it before the requests are sent."""
        self._expected[owner] = _Expected(self._clock.monotonic(), creations, set(deletions))

    def created(self, owner: str, count: int = 1) -> None:
        """Observes creations, or gives up those that failed."""
        if (expected := self._expected.get(owner)) is not None:
            expected.creations -= count

    def deleted(self, owner: str, uid: str) -> None:
        """Observes a deletion, or the beginning of one, or gives up one that failed."""
        if (expected := self._expected.get(owner)) is not None:
            expected.deletions.discard(uid)

    def satisfied(self, owner: str) -> bool:
        """Returns whether everything was observed, or expired."""
        expected = self._expected.get(owner)
        if expected is None or (expected.creations <= 0 and not expected.deletions):
            return True
        return self._clock.monotonic() - expected.since > EXPIRY

    def expires_in(self, owner: str) -> float:
        """Returns the seconds until unsatisfied expectations expire."""
        expected = self._expected.get(owner)
        return max(0.0, expected.since + EXPIRY - self._clock.monotonic()) if expected is not None else 0.0

    def forget(self, owner: str) -> None:
        self._expected.pop(owner, None)
