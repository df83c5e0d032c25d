"""Measures how long an API server takes from exec until it is ready."""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.api import KUBE
from benchmarks.figures import Figure, Peer
from benchmarks.machine import DISK
from benchmarks.server import Server

TIMES = 5
PEER = Peer(KUBE, 2700, 0.5)


def measure(_seconds: float) -> Iterator[Figure]:
    """The median of a few starts; the first of each kind does not count, since it warms the machine's caches."""
    fresh, again = [], []
    for _ in range(TIMES + 1):
        with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
            fresh.append(_start(Path(folder)))
            again.append(_start(Path(folder)))
    for what, times in (("start with a new data directory", fresh), ("start with an existing one", again)):
        yield Figure(group="API server start", what=what, value=statistics.median(times[1:]), unit=" ms", peer=PEER)


def _start(folder: Path) -> float:
    server = Server(folder)
    server.stop()
    return server.ready_ms
