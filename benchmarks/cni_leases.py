"""Leases beside how many others: an ADD and a DEL cost the same in an empty network and in a crowded one.

In memory: what a disk adds depends on the disk, and on what was deleted there a while ago.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from benchmarks.figures import Figure
from podwire.ipam.deletions import boot_id
from podwire.ipam.entries import Entries, Lease, Owner
from podwire.ipam.leases import Leases
from podwire.ipam.ranges import parse_sets

GROUP = "IPAM, a lease beside others, in memory"
MEMORY = "/dev/shm"  # noqa: S108 - a directory with a name of its own is made there
OTHERS = (0, 1_000, 16_000, 60_000)
SUBNET = "10.0.0.0/16"
PER_SECOND = 20
_NETNS = "/run/netns/bench"


def measure(seconds: float) -> Iterator[Figure]:
    for others in OTHERS:
        with tempfile.TemporaryDirectory(dir=MEMORY, prefix="podwire-bench-") as folder:
            yield from _figures(Path(folder, "net"), others, max(10, round(PER_SECOND * seconds)))


def _figures(directory: Path, others: int, rounds: int) -> Iterator[Figure]:
    _fill(directory, others)
    leases, sets = Leases(str(directory)), parse_sets({"subnet": SUBNET})
    leases.release(Owner("nobody", "eth0"))  # the first of a boot looks through all
    times: dict[str, list[float]] = {"ADD": [], "DEL": [], "DEL again": []}
    for number in range(rounds):
        owner = Owner(f"new{number}", "eth0")
        for verb, work in (
            ("ADD", partial(leases.take, owner, sets, (), _NETNS)),
            ("DEL", partial(leases.release, owner)),
            ("DEL again", partial(leases.release, owner)),
        ):
            begun = time.perf_counter()
            work()
            times[verb].append(time.perf_counter() - begun)
    for verb, taken in times.items():
        value = statistics.median(taken) * 1e3
        yield Figure(group=GROUP, what=f"{verb}, {others} others", value=value, unit=" ms")


def _fill(directory: Path, others: int) -> None:
    directory.mkdir()
    entries, first = Entries(str(directory)), ip_address("10.0.0.2")
    for number in range(others):
        owner, ip = Owner(f"c{number}", "eth0"), first + number
        Path(entries.path(owner.entry)).symlink_to(Lease((ip,), boot_id(), _NETNS).text)
        entries.put_mirror(owner)
        entries.take(str(ip), owner)
    if others:
        entries.put_cursor(0, first + others - 1)
