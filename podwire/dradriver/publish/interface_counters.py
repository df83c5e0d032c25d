"""What goes through the interfaces that pods have claimed. Blocks."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from podwire.dradriver.ports import Record
from podwire.linux.proc.namespaces import visit

FILE = Path("/proc/thread-self/net/dev")
"""Of the network namespace that the thread is in."""
FIELDS = {
    "receive_bytes_total": 0,
    "receive_packets_total": 1,
    "receive_errors_total": 2,
    "receive_dropped_total": 3,
    "transmit_bytes_total": 8,
    "transmit_packets_total": 9,
    "transmit_errors_total": 10,
    "transmit_dropped_total": 11,
}
"""By their place in the kernel's table."""


class Counted(NamedTuple):
    record: Record
    counters: dict[str, int]


def parse(text: str) -> dict[str, dict[str, int]]:
    """By interface, of what /proc/net/dev says."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        found[name.strip()] = {field: int(numbers[at]) for field, at in FIELDS.items()}
    return found


def counted(records: Iterable[Record]) -> list[Counted]:
    """Of those whose pods are there; others are left out."""
    by_place: dict[str, list[Record]] = {}
    for each in records:
        if each.netns:
            by_place.setdefault(each.netns, []).append(each)
    return [each for netns, of in by_place.items() for each in _in(netns, of)]


def _in(netns: str, records: Sequence[Record]) -> list[Counted]:
    try:
        with visit(netns):
            there = parse(FILE.read_text(encoding="ascii"))
    except OSError:
        return []
    return [Counted(each, there[each.order.settings.name]) for each in records if each.order.settings.name in there]
