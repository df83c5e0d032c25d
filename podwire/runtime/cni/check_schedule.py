"""When a pod is checked: in turn, spread over the interval; soon after something of it changed. Pure.

Times are seconds of one monotonic clock.
"""

from dataclasses import dataclass, field
from zlib import crc32

from podwire.runtime.cni.limits import CniLimits

_SAME = 0.01


@dataclass(slots=True)
class ScheduledCheck:
    """The next check of one pod."""

    due: float
    checked: float = float("-inf")
    """When the last check began."""
    hinted: bool = False
    """Something of the pod changed since."""
    idle: int = 0
    """Consecutive checks because of changes that found nothing new."""
    busy: bool = False
    """A check is running."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rules by which checks become due."""

    interval: float
    limits: CniLimits = field(default_factory=CniLimits)

    def next_time(self, id_: str, now: float) -> float:
        """Returns the first of a pod's own times after now.

        These times do not depend on when the pod was attached, so that all pods together stay spread evenly.
        """
        wait = self.interval - (now - phase(id_) * self.interval) % self.interval
        # The resolution of floats: a check that is due now must not be due again in a nanosecond.
        return now + wait if wait > self.interval * _SAME else now + wait + self.interval

    def begin(self, check: ScheduledCheck, id_: str, now: float) -> bool:
        """Marks a check as running. Returns whether it runs because of a change; later changes count for the next."""
        hinted, check.hinted, check.busy = check.hinted, False, True
        check.checked, check.due = now, self.next_time(id_, now)
        return hinted

    def hint(self, check: ScheduledCheck, now: float) -> None:
        """Moves a check forward, because something of the pod changed."""
        if now - check.checked > self.limits.calm + self._gap(check):
            check.idle = 0
        check.due = min(check.due, max(now, check.checked + self._gap(check)))
        check.hinted = True

    def starts_at(self, check: ScheduledCheck, quiet: float) -> float:
        """Returns when the check may start, if pods are being attached until `quiet`."""
        return check.due if check.hinted else max(check.due, min(quiet, check.due + self.limits.patience))

    def _gap(self, check: ScheduledCheck) -> float:
        return min(self.limits.gap * 2.0 ** min(check.idle, 16), self.interval)


def finish(check: ScheduledCheck, *, hinted: bool, changed: bool) -> None:
    """Counts checks because of changes that found nothing new."""
    check.idle = check.idle + 1 if hinted and not changed else 0


def phase(id_: str) -> float:
    """Returns a number from 0 to 1: the same for the same pod, and even over all pods."""
    return crc32(id_.encode()) / 2**32
