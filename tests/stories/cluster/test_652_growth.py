"""Waves of pods come and go: threads and memory of the components do not grow with their number.

`make test` plays small waves; `make soak` plays waves as large as a node.
"""

import os
import sys
from pathlib import Path

import pytest

from podwire.cluster.runtime import THREADS
from podwire.linux.proc.processes import memory_of
from podwire.runtime.cni import CniLimits

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
PODS = 110 if SOAK else 10
"""At once; a node has at most 110 by default."""
WAVES = 3
OTHERS = 12
"""Threads of the runtime besides its two pools: the main one, watches, one for each plugin of NRI."""
MEGABYTE = 1 << 20
MOST_GROWN = {"apiserver": 50, "trace": 15, "runtime": 40}
"""Megabytes by which a component may be larger after all waves than before the first."""

pytestmark = pytest.mark.timeout(1800 if SOAK else 400)


def threads(pid):
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def memory(cluster):
    return {name: memory_of(cluster.pid(name)) / MEGABYTE for name in MOST_GROWN}


def test_threads_and_memory_stay_bounded_while_pods_come_and_go(cluster, a_pod):
    cluster.up()
    before = memory(cluster)
    most = 0
    for wave in range(WAVES):
        cluster.apply(*(a_pod(f"pod-{wave}-{number}") for number in range(PODS)))
        cluster.running(PODS)
        most = max(most, threads(cluster.pid("runtime")))
        cluster.delete_all()
    after = memory(cluster)
    assert most <= THREADS + CniLimits().concurrent_pods + OTHERS
    grown = {name: after[name] - before[name] for name in MOST_GROWN}
    assert all(grown[name] <= MOST_GROWN[name] for name in MOST_GROWN), f"{before} {after}"
    sys.stdout.write(f"threads of the runtime: {most}; memory before: {before}, after: {after}\n")
    cluster.down()
