"""kill -9 of one component while ten pods start: whoever watches sees a pause, and every pod runs exactly once."""

import os
import random
import signal
import sys
import time

import pytest

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run, another one every hour; set it to repeat a run."""

COMPONENTS = ("trace", "apiserver", "cni", "runtime", "scheduler", "kubelet")
PODS = 10
ROUNDS = 4 if SOAK else 1
JITTER_SECONDS = 0.05

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


def amidst(cluster, chance):
    """Wait for a moment in the middle: so many containers are there, and something is done for the next."""
    count = chance.randrange(PODS)
    made = lambda: len(cluster.cri("ListContainers").containers)  # noqa: E731 - shorter than its use
    cluster.eventually(lambda: made() >= count, f"{count} containers are made")
    time.sleep(chance.random() * JITTER_SECONDS)


@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("component", COMPONENTS)
def test_pods_start_once_though_a_component_is_killed(cluster, a_pod, component, round_):
    seed = SEED + round_
    chance = random.Random(f"{seed} {component}")
    sys.stdout.write(f"PODWIRE_CRASH_SEED={seed}\n")
    cluster.up()
    with cluster.applying(*(a_pod(f"pod-{each}") for each in range(PODS))):
        amidst(cluster, chance)
        before = cluster.pids()
        cluster.signal(component, signal.SIGKILL)
    cluster.eventually(lambda: cluster.restarts(component) == 1 and cluster.is_up(), f"{component} is there again")
    pids = cluster.once(cluster.running(PODS))
    sys.stdout.write(f"{len(before)} containers ran when {component} was killed\n")
    assert before.items() <= pids.items(), "a container that ran lost its process"
    assert {name for name, each in cluster.components().items() if each["restarts"]} == {component}
    cluster.delete_all()
    cluster.empty()
    cluster.down()
