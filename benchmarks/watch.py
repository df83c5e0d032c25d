"""Measures how long after a patch its event is received, with many watchers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks import scale
from benchmarks.api import KUBE
from benchmarks.figures import Figure, Peer
from benchmarks.machine import CannotMeasure, on_core
from benchmarks.server import TOKEN, Server, serving
from benchmarks.watchers import connections
from benchmarks.workload import NAMESPACE, PODS, pod

PEERS = {"p50": Peer(KUBE, 6, 1.0), "p99": Peer(KUBE, 9, 1.0)}
CROWDS = ((100, 50, PEERS), (500, 250, dict.fromkeys(("p50", "p99", "write p50"))))
"""Watchers, changes a second, and the peers of each figure."""


def measure(seconds: float) -> Iterator[Figure]:
    for watchers, rate, peers in CROWDS:
        with serving() as server:
            server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            server.fill(PODS, (pod(f"pod-{number}") for number in range(connections(rate))))
            delays = _watchers(server, watchers, rate, seconds)
        for name, peer in peers.items():
            yield Figure(
                group=f"{watchers} watchers of Pods that change {rate} times a second",
                what=name if name.startswith("write") else f"sent → seen, {name}",
                value=delays[name],
                unit=" ms",
                peer=peer,
            )
    yield from scale.mixed_watches()


def _watchers(server: Server, watchers: int, rate: int, seconds: float) -> dict[str, float]:
    """In a process of their own, so that the clients do not wait for each other's Python."""
    command = [*on_core(-1), sys.executable, "-m", "benchmarks.watchers"]
    numbers = [str(server.port), str(watchers), str(rate), str(max(1.0, seconds))]
    done = subprocess.run(
        [*command, *numbers], capture_output=True, text=True, check=False, env={**os.environ, "BENCH_TOKEN": TOKEN}
    )
    if done.returncode:
        raise CannotMeasure(f"the watchers failed: {done.stderr.strip()}")
    delays: dict[str, float] = json.loads(done.stdout)
    return delays
