"""Traffic counters of claimed interfaces in pods. Blocks."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from podwire.dradriver.attach.records import Record
from podwire.linux.proc.namespaces import visit

FILE = Path("/proc/thread-self/net/dev")
"""Counters of the network namespace that the thread is in."""
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
"""Columns of the kernel's table."""


class InterfaceCounters(NamedTuple):
    record: Record
    values: dict[str, int]


def parse(text: str) -> dict[str, dict[str, int]]:
    """Returns the counters by interface from the text of /proc/net/dev."""
    counters = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        counters[name.strip()] = {field: int(numbers[at]) for field, at in FIELDS.items()}
    return counters


def read_counters(records: Iterable[Record]) -> list[InterfaceCounters]:
    """Reads the counters of interfaces whose pods exist; others are left out."""
    by_netns: dict[str, list[Record]] = {}
    for record in records:
        if record.netns:
            by_netns.setdefault(record.netns, []).append(record)
    return [counters for netns, in_netns in by_netns.items() for counters in _read(netns, in_netns)]


def _read(netns: str, records: Sequence[Record]) -> list[InterfaceCounters]:
    try:
        with visit(netns):
            counters = parse(FILE.read_text(encoding="ascii"))
    except OSError:
        return []
    names = {record.allocation.settings.name: record for record in records}
    return [InterfaceCounters(record, counters[name]) for name, record in names.items() if name in counters]
