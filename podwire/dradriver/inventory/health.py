"""How devices are. Pure. A condition has to last before it counts: links come and go by themselves, for moments."""

from collections.abc import Mapping
from typing import NamedTuple


class Health(NamedTuple):
    healthy: bool
    message: str
    since: float
    """By the wall clock."""
    taint: str = ""
    """The key of the taint that goes with it."""


class Condition(NamedTuple):
    """A problem of a device."""

    taint: str
    message: str
    certain: bool = False
    """It need not last to be true."""


class HealthTracker:
    """Remembers since when what was wrong. Times are handed in: the steady one, and that of the wall."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._begun: dict[str, tuple[str, float]] = {}
        self._verdicts: dict[str, Health] = {}

    def update(self, conditions: Mapping[str, Condition | None], now: float, wall: float) -> Mapping[str, Health]:
        """Returns the health of each device; others are forgotten."""
        begun: dict[str, tuple[str, float]] = {}
        verdicts: dict[str, Health] = {}
        for device, condition in conditions.items():
            before = self._verdicts.get(device)
            if condition is not None:
                earlier, start = self._begun.get(device, (condition.taint, now))
                begun[device] = condition.taint, start if earlier == condition.taint else now
                if not (condition.certain or now - begun[device][1] >= self._patience):
                    verdicts[device] = before or Health(True, "", wall)
                    continue
            taint, message = (condition.taint, condition.message) if condition else ("", "")
            since = before.since if before is not None and before.taint == taint else wall
            verdicts[device] = Health(condition is None, message, since, taint)
        self._begun, self._verdicts = begun, verdicts
        return verdicts

    def waits(self, now: float) -> float | None:
        """Seconds until somebody should look again, because something will have lasted long enough; None for never."""
        ends = [
            since + self._patience - now
            for device, (taint, since) in self._begun.items()
            if self._verdicts[device].taint != taint
        ]
        return max(min(ends), 0.0) if ends else None
