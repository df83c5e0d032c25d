"""Eviction thresholds: parsed from `memory.available<100Mi,nodefs.available<10%`, compared with observations. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podwire.linux.machine import FreeResources
from podwire.objects.quantity import parse

MEMORY, DISK, PIDS = "MemoryPressure", "DiskPressure", "PIDPressure"
"""Conditions of the node."""


class Signal(NamedTuple):
    """An observable amount: the condition of the node when it is short, and the resource that is to be reclaimed."""

    condition: str
    resource: str


SIGNALS: Mapping[str, Signal] = {
    "memory.available": Signal(MEMORY, "memory"),
    "nodefs.available": Signal(DISK, "ephemeral-storage"),
    "nodefs.inodesFree": Signal(DISK, "inodes"),
    "imagefs.available": Signal(DISK, "ephemeral-storage"),
    "imagefs.inodesFree": Signal(DISK, "inodes"),
    "pid.available": Signal(PIDS, "pids"),
}
"""In the order in which resources are reclaimed: memory first."""


_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s?)?")


class Observation(NamedTuple):
    available: int
    capacity: int


class Threshold(NamedTuple):
    """With less than this available, pods are evicted: at once, or, if it is soft, after its grace period."""

    signal: str
    amount: int | None = None
    share: float = 0.0
    """Share of the capacity; used when `amount` is None."""
    grace: float | None = None
    """Seconds for which a soft threshold must be passed; None for a hard one."""
    reclaim: int | None = 0
    """Once pods are evicted, this much more than the threshold must become available."""
    reclaim_share: float = 0.0
    """Share of the capacity; used when `reclaim` is None."""

    def of(self, capacity: int) -> int:
        return int(capacity * self.share) if self.amount is None else self.amount

    def with_reclaim(self, capacity: int) -> int:
        """The amount at which eviction ends."""
        return self.of(capacity) + (int(capacity * self.reclaim_share) if self.reclaim is None else self.reclaim)


DEFAULT = (
    Threshold("memory.available", 100 * 1024**2),
    Threshold("nodefs.available", None, 0.10),
    Threshold("nodefs.inodesFree", None, 0.05),
    Threshold("imagefs.available", None, 0.15),
    Threshold("imagefs.inodesFree", None, 0.05),
)
"""Upstream's hard thresholds."""


def parse_thresholds(text: str) -> tuple[Threshold, ...]:
    """Parses `SIGNAL<VALUE,…`. An empty text turns eviction off. Raises ValueError, which names the wrong part."""
    thresholds: dict[str, Threshold] = {}
    for part in filter(None, text.split(",")):
        signal, operator, value = part.partition("<")
        if not operator:
            raise ValueError(f"{part!r}: expected SIGNAL<QUANTITY or SIGNAL<PERCENT%")
        if signal not in SIGNALS:
            raise ValueError(f"unknown eviction signal {signal!r}: expected one of {', '.join(SIGNALS)}")
        if signal in thresholds:
            raise ValueError(f"eviction signal {signal} is given twice")
        thresholds[signal] = _parse(signal, value)
    return tuple(thresholds.values())


def _parse(signal: str, value: str) -> Threshold:
    if not value.endswith("%"):
        amount = parse(value).value()
        if amount < 0:
            raise ValueError(f"eviction threshold {signal} must be positive: {value}")
        return Threshold(signal, amount)
    try:
        share = float(value[:-1])
    except ValueError:
        share = -1.0
    if not 0 <= share < 100:
        raise ValueError(f"eviction threshold {signal} must be a percentage from 0 to below 100: {value}")
    return Threshold(signal, None, share / 100)


def parse_grace_periods(text: str) -> dict[str, float]:
    """Parses `SIGNAL=SECONDS,…`, where seconds may be a duration such as 1m30s. Raises ValueError."""
    periods: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        signal, operator, value = part.partition("=")
        if not operator:
            raise ValueError(f"{part!r}: expected SIGNAL=DURATION")
        if signal not in SIGNALS:
            raise ValueError(f"unknown eviction signal {signal!r}: expected one of {', '.join(SIGNALS)}")
        periods[signal] = _duration(signal, value)
    return periods


def _duration(signal: str, text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"eviction grace period {signal} must be a positive duration such as 1m30s: {text}")
    hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def soft(thresholds: Iterable[Threshold], periods: Mapping[str, float]) -> tuple[Threshold, ...]:
    """Soft thresholds, each with its grace period. Raises ValueError, as upstream does, if one has none."""
    missing = [threshold.signal for threshold in thresholds if threshold.signal not in periods]
    if missing:
        raise ValueError(f"grace period must be specified for the soft eviction threshold {missing[0]}")
    return tuple(threshold._replace(grace=periods[threshold.signal]) for threshold in thresholds)


def parse_minimum_reclaim(text: str) -> dict[str, Threshold]:
    """Parses `SIGNAL=QUANTITY,…` or `SIGNAL=PERCENT%`: the amounts by signal. Raises ValueError."""
    reclaims: dict[str, Threshold] = {}
    for part in filter(None, text.split(",")):
        signal, operator, value = part.partition("=")
        if not operator:
            raise ValueError(f"{part!r}: expected SIGNAL=QUANTITY or SIGNAL=PERCENT%")
        if signal not in SIGNALS:
            raise ValueError(f"unknown eviction signal {signal!r}: expected one of {', '.join(SIGNALS)}")
        if signal in reclaims:
            raise ValueError(f"eviction signal {signal} is given twice")
        reclaims[signal] = _parse(signal, value)
    return reclaims


def reclaiming(thresholds: Iterable[Threshold], reclaims: Mapping[str, Threshold]) -> tuple[Threshold, ...]:
    """The thresholds with the minimum reclaim of their signals."""
    none = Threshold("", 0)
    amounts = [(threshold, reclaims.get(threshold.signal, none)) for threshold in thresholds]
    return tuple(threshold._replace(reclaim=amount.amount, reclaim_share=amount.share) for threshold, amount in amounts)


def observations(memory: int, node: FreeResources, images: FreeResources | None = None) -> dict[str, Observation]:
    """`memory` is the capacity; `images` the file system of images and writable layers."""
    observed = {
        "memory.available": Observation(node.memory, memory),
        "pid.available": Observation(node.pids, node.pids_size),
        **_file_system("nodefs", node),
    }
    return observed if images is None else observed | _file_system("imagefs", images)


def _file_system(name: str, left: FreeResources) -> dict[str, Observation]:
    """A file system that creates inodes on demand does not run out of them."""
    inodes = {f"{name}.inodesFree": Observation(left.inodes, left.inodes_size)} if left.inodes_size else {}
    return {f"{name}.available": Observation(left.disk, left.disk_size), **inodes}


def met(thresholds: Iterable[Threshold], observed: Mapping[str, Observation]) -> list[Threshold]:
    """The thresholds that are passed, in the order in which they are handled."""
    return in_order(
        threshold
        for threshold in thresholds
        if (seen := observed.get(threshold.signal)) and seen.available < threshold.of(seen.capacity)
    )


def in_order(thresholds: Iterable[Threshold]) -> list[Threshold]:
    """Thresholds in the order in which they are handled."""
    order = list(SIGNALS)
    return sorted(thresholds, key=lambda threshold: order.index(threshold.signal))


def unresolved(thresholds: Iterable[Threshold], observed: Mapping[str, Observation]) -> list[Threshold]:
    """Of thresholds that were passed: those whose minimum reclaim is not available yet."""
    return [
        threshold
        for threshold in thresholds
        if (seen := observed.get(threshold.signal)) and seen.available < threshold.with_reclaim(seen.capacity)
    ]


def pressed_conditions(passed: Iterable[Threshold]) -> frozenset[str]:
    return frozenset(SIGNALS[threshold.signal].condition for threshold in passed)


def reserved(thresholds: Iterable[Threshold], signal: str, capacity: int) -> int:
    """The amount that is not allocatable to pods because of a threshold."""
    return next((threshold.of(capacity) for threshold in thresholds if threshold.signal == signal), 0)
