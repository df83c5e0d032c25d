"""When a component that died is started again. Pure."""

from dataclasses import dataclass, replace

FIRST, LONGEST = 0.1, 5.0
SETTLED = 10.0
"""Seconds after which a component that was up counts as healthy: the next death is a first one again."""
HOPELESS = 4
"""Deaths in a row without ever having been ready, after which a start is given up."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """What is known of one component's deaths."""

    count: int = 0
    """All of them, for people."""
    in_a_row: int = 0
    unready: int = 0
    """In a row, without having been ready before."""

    def died(self, *, lived: float, was_ready: bool) -> "Restarts":
        again = 0 if was_ready and lived >= SETTLED else self.in_a_row
        unready = 0 if was_ready else self.unready + 1
        return replace(self, count=self.count + 1, in_a_row=again + 1, unready=unready)

    @property
    def wait(self) -> float:
        """Seconds until the next start."""
        return min(FIRST * (1 << max(self.in_a_row - 1, 0)), LONGEST)

    @property
    def hopeless(self) -> bool:
        return self.unready >= HOPELESS
