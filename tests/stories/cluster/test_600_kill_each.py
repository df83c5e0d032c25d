"""kill -9 of a component, or of two, while ten pods start: a pause is all, and every pod runs exactly once."""

import itertools
import os
import random
import signal
import sys
import time

import pytest

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run, another one every hour; set it to repeat a run."""

COMPONENTS = ("trace", "apiserver", "cni", "runtime", "scheduler", "dns", "kubelet")
PODS = 10
ROUNDS = 4 if SOAK else 1
JITTER_SECONDS = 0.05

ONE = [(component,) for component in COMPONENTS]
TWO = list(itertools.combinations(COMPONENTS, 2))
VICTIMS = [*ONE * ROUNDS, *TWO] if SOAK else random.Random(SEED).sample(ONE, 2)

pytestmark = pytest.mark.timeout(400)


def amidst(cluster, chance):
    """Wait for a moment in the middle: so many containers are there, and something is done for the next."""
    count = chance.randrange(PODS)
    made = lambda: len(cluster.cri("ListContainers").containers)  # noqa: E731 - shorter than its use
    cluster.eventually(lambda: made() >= count, f"{count} containers are made")
    time.sleep(chance.random() * JITTER_SECONDS)


@pytest.mark.parametrize(
    ("round_", "victims"),
    list(enumerate(VICTIMS)),
    ids=[f"{'+'.join(victim)}-{round_}" for round_, victim in enumerate(VICTIMS)],
)
def test_pods_start_once_while_components_are_killed(cluster, a_pod, victims, round_):
    chance = random.Random(f"{SEED} {round_} {victims}")
    sys.stdout.write(f"PODWIRE_CRASH_SEED={SEED}\n")
    cluster.up()
    with cluster.applying(*(a_pod(f"pod-{number}") for number in range(PODS))):
        amidst(cluster, chance)
        before = cluster.pids()
        for victim in victims:
            cluster.signal(victim, signal.SIGKILL)
    died = lambda: all(cluster.restarts(victim) == 1 for victim in victims)  # noqa: E731 - shorter than its use
    cluster.eventually(lambda: died() and cluster.is_up(), f"{victims} are there again")
    pids = cluster.once(cluster.running(PODS))
    sys.stdout.write(f"{len(before)} containers ran when {victims} were killed\n")
    assert before.items() <= pids.items(), "a container that ran lost its process"
    assert {name for name, component in cluster.components().items() if component["restarts"]} == set(victims)
    cluster.delete_all()
    cluster.empty()
    cluster.down()
