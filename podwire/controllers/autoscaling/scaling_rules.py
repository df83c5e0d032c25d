"""How fast a number of replicas may change: stabilization windows, policies and limits. Pure, with a clock handed in.

Without `behavior`, replicas at most double (or become four), and go down to the highest recommendation of five minutes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Rules = Mapping[str, Any]
"""`scaleUp` or `scaleDown` of a behavior, with its defaults."""


@dataclass(slots=True)
class History:
    """Recommendations and changes of one autoscaler: when, and how many."""

    recommendations: list[tuple[float, int]] = field(default_factory=list)
    ups: list[tuple[float, int]] = field(default_factory=list)
    downs: list[tuple[float, int]] = field(default_factory=list)

    def begin(self, current: int, now: float) -> None:
        """Counts the replicas at the beginning as a recommendation."""
        if not self.recommendations:
            self.recommendations.append((now, current))

    def rescaled(self, before: int, after: int, behavior: Mapping[str, Any] | None, now: float) -> None:
        """Keeps a change as long as a policy looks at it."""
        if behavior is None:
            return
        changes, rules = (self.ups, behavior["scaleUp"]) if after > before else (self.downs, behavior["scaleDown"])
        longest = max((policy["periodSeconds"] for policy in rules.get("policies") or ()), default=0)
        changes[:] = [change for change in changes if change[0] >= now - longest]
        changes.append((now, abs(after - before)))


@dataclass(frozen=True, slots=True)
class Limited:
    """The replicas that are allowed, and why they are stabilized and limited: reason and message of two conditions."""

    replicas: int
    able: tuple[str, str]
    limited: tuple[bool, str, str]


READY = ("ReadyForNewScale", "recommended size matches current size")
STABLE_DOWN = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
STABLE_UP = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
UP_LIMIT = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
DOWN_LIMIT = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")


def limit(
    history: History,
    behavior: Mapping[str, Any] | None,
    current: int,
    desired: int,
    bounds: tuple[int, int],
    now: float,
    down_window: float,
) -> Limited:
    """Returns the replicas to scale to, between both bounds; the recommendation is kept."""
    if behavior is None:
        return _without_behavior(history, current, desired, bounds, now, down_window)
    up, down = behavior["scaleUp"], behavior["scaleDown"]
    windows = up.get("stabilizationWindowSeconds") or 0, down.get("stabilizationWindowSeconds", down_window)
    recommended = _stabilized(history, current, desired, now, *windows)
    able = READY if recommended == desired else STABLE_UP if desired >= current else STABLE_DOWN
    lowest, highest = bounds
    replicas, why = recommended, WITHIN
    if recommended > current:
        most = max(current, _limit(current, history, up, now, up=True))
        highest, possible = (most, UP_LIMIT) if highest > most else (highest, TOO_MANY)
        if recommended > highest:
            replicas, why = highest, possible
    elif recommended < current:
        least = min(current, _limit(current, history, down, now, up=False))
        lowest, possible = (least, DOWN_LIMIT) if lowest < least else (lowest, TOO_FEW)
        if recommended < lowest:
            replicas, why = lowest, possible
    return Limited(replicas, able, (replicas != recommended, *why))


def _without_behavior(
    history: History, current: int, desired: int, bounds: tuple[int, int], now: float, window: float
) -> Limited:
    recent = [replicas for time, replicas in history.recommendations if time >= now - window]
    recommended = max([desired, *recent])
    _keep(history, now, window, desired)
    lowest, highest = bounds
    most = max(2 * current, 4)
    replicas, why = recommended, WITHIN
    if recommended < lowest:
        replicas, why = lowest, TOO_FEW
    elif recommended > min(highest, most):
        replicas, why = min(highest, most), UP_LIMIT if highest > most else TOO_MANY
    return Limited(replicas, READY if recommended == desired else STABLE_DOWN, (replicas != recommended, *why))


def _stabilized(history: History, current: int, desired: int, now: float, up_window: float, down_window: float) -> int:
    lowest = highest = desired
    for time, replicas in history.recommendations:
        if time > now - up_window:
            lowest = min(lowest, replicas)
        if time > now - down_window:
            highest = max(highest, replicas)
    _keep(history, now, max(up_window, down_window), desired)
    return min(max(current, lowest), highest)


def _keep(history: History, now: float, window: float, desired: int) -> None:
    history.recommendations[:] = [row for row in history.recommendations if row[0] >= now - window]
    history.recommendations.append((now, desired))


def _limit(current: int, history: History, rules: Rules, now: float, *, up: bool) -> int:
    """Returns the most, or the least, that the policies allow."""
    select = rules.get("selectPolicy") or "Max"
    if select == "Disabled":
        return current
    proposed = []
    for policy in rules.get("policies") or ():
        period = policy["periodSeconds"]
        start = current - _changed(history.ups, period, now) + _changed(history.downs, period, now)
        amount = policy["value"]
        if policy["type"] == "Pods":
            proposed.append(start + amount if up else start - amount)
        elif up:
            proposed.append(math.ceil(start * (1 + amount / 100)))
        else:
            proposed.append(int(start * (1 - amount / 100)))
    choose: Callable[[Sequence[int]], int] = max if (select == "Max") == up else min
    return choose(proposed) if proposed else current


def _changed(changes: Sequence[tuple[float, int]], period: float, now: float) -> int:
    return sum(replicas for time, replicas in changes if time > now - period)
