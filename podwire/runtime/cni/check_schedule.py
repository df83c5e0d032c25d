"""When a pod is checked: in turn, spread over the interval; soon after something of it changed. Pure.

Times are seconds of one monotonic clock.
"""

from dataclasses import dataclass
from zlib import crc32

FIRST = 1.0
"""After a pod was attached. Whatever comes before it would be in the way of its start."""
AFTER_RESTART = 10.0
"""Within which all pods are checked that were there before this process was."""
QUIET = 1.0
"""Without an ADD, before a pod is checked of which nothing changed."""
PATIENCE = 30.0
"""How long such a check may wait for that."""
CONFIRM = 1.0
"""Between a check that fails and the one that has the pod's network given up."""
GAP = 0.5
"""Between two checks because of changes; twice as long after each that found nothing new."""
CALM = 10.0
"""Without a check, after which it is no longer remembered that changes meant nothing."""
_SAME = 0.01


@dataclass(slots=True)
class ScheduledCheck:
    """One pod's place in the order."""

    due: float
    checked: float = float("-inf")
    hinted: bool = False
    """Whether something of it changed since."""
    idle: int = 0
    """How many checks in a row were because of changes, and found nothing new."""
    busy: bool = False


def phase(id_: str) -> float:
    """From 0 to 1: the same for the same pod, and even over all of them."""
    return crc32(id_.encode()) / 2**32


def next_turn(id_: str, now: float, interval: float) -> float:
    """The first of a pod's own times after now. They do not depend on when it came, so all together stay even."""
    wait = interval - (now - phase(id_) * interval) % interval
    # Clocks have few digits: what is due now must not be due again in a nanosecond.
    return now + wait if wait > interval * _SAME else now + wait + interval


def begin(turn: ScheduledCheck, id_: str, now: float, interval: float) -> bool:
    """It is checked now; whether that is because something changed. A change from now on counts for the next time."""
    hinted, turn.hinted, turn.busy = turn.hinted, False, True
    turn.checked, turn.due = now, next_turn(id_, now, interval)
    return hinted


def hint(turn: ScheduledCheck, now: float, interval: float) -> None:
    """Something of it changed."""
    if now - turn.checked > CALM + _gap(turn, interval):
        turn.idle = 0
    turn.due = min(turn.due, max(now, turn.checked + _gap(turn, interval)))
    turn.hinted = True


def found(turn: ScheduledCheck, hinted: bool, news: bool) -> None:
    turn.idle = turn.idle + 1 if hinted and not news else 0


def starts_at(turn: ScheduledCheck, quiet: float) -> float:
    """When it may be checked, if pods are being attached until `quiet`."""
    return turn.due if turn.hinted else max(turn.due, min(quiet, turn.due + PATIENCE))


def _gap(turn: ScheduledCheck, interval: float) -> float:
    return min(GAP * 2.0 ** min(turn.idle, 16), interval)
