"""Readings of a kubelet's /metrics/resource, and the usage between two of them. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

CPU, MEMORY = "cpu_usage_seconds_total", "memory_working_set_bytes"
START = "container_start_time_seconds"
_LINE = re.compile(r"([a-z_]+)(?:\{([^}]*)\})? (\S+)(?: (\d{1,15}))?", re.ASCII)
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
SHORTEST = 0.5
"""Seconds between two readings below which there is no rate."""

Key = tuple[str, str, str]
"""Namespace, pod and container; all empty for the node."""
NODE: Key = ("", "", "")


class Reading(NamedTuple):
    """One container, or the node."""

    time: float
    """Seconds since 1970."""
    cpu: float
    """Seconds of processor time."""
    memory: int
    started: float = 0.0


class Usage(NamedTuple):
    """Usage in the window before `time`."""

    time: float
    window: float
    nanocores: int
    memory: int


def parse(text: str, now: float) -> dict[Key, Reading]:
    """Returns the readings of the node and its containers; lines that are something else are skipped."""
    values: dict[Key, dict[str, float]] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or (name := _NAMES.get(match[1])) is None:
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        key = (labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", ""))
        try:
            value = float(match[3])
        except ValueError:
            continue
        row = values.setdefault(key, {})
        row[name] = value
        if name == "cpu":
            row["time"] = int(match[4]) / 1000 if match[4] else now
    return {
        key: Reading(row["time"], row["cpu"], int(row["memory"]), row.get("started", 0.0))
        for key, row in values.items()
        if "cpu" in row and "memory" in row and (key == NODE or all(key))
    }


_NAMES = {
    f"node_{CPU}": "cpu",
    f"node_{MEMORY}": "memory",
    f"container_{CPU}": "cpu",
    f"container_{MEMORY}": "memory",
    START: "started",
}


def usage(before: Mapping[Key, Reading], now: Mapping[Key, Reading], key: Key) -> Usage | None:
    """Returns the usage of one container or of the node; None if it cannot be known yet.

    A container that was started after the first reading is measured from its start.
    """
    current = now.get(key)
    if current is None:
        return None
    previous = before.get(key)
    began, spent = (previous.time, previous.cpu) if previous is not None else (current.started, 0.0)
    if previous is None or (current.started and current.started > previous.time):
        began, spent = current.started, 0.0
    window = current.time - began
    if not began or window < SHORTEST or current.cpu < spent:
        return None
    return Usage(current.time, window, round((current.cpu - spent) * 1e9 / window), current.memory)
