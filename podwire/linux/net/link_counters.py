"""Counters of the links of a network namespace, from /proc/net/dev."""

from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Path


class LinkCounters(NamedTuple):
    """Bytes and packets that a link has received and sent."""

    name: str
    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


def read_link_counters(netns: Path) -> list[LinkCounters]:
    """Returns the counters of all links but loopback, in the kernel's order. Raises NoSuchNamespace, LinuxError."""
    with visit(netns):
        try:
            with open("/proc/thread-self/net/dev", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError as error:
            raise errors.from_oserror(error, f"read the counters of {netns}") from error
    return parse_link_counters(text)


def parse_link_counters(text: str) -> list[LinkCounters]:
    """Reads /proc/net/dev: two lines of headings, then a name and 16 numbers, 8 received and 8 sent."""
    counters = []
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = [int(word) for word in rest.split() if word.isdigit()]
        if len(numbers) >= 12 and name.strip() != "lo":
            counters.append(LinkCounters(name.strip(), *numbers[0:4], *numbers[8:12]))
    return counters
