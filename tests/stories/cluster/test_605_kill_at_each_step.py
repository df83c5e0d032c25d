"""kill -9 of a component at each step that matters: each pod runs exactly once, or is gone, whichever was asked for."""

import os
import random
import time

import pytest

import podwire.cluster.up.components  # noqa: F401 - declares the failpoints
from podwire.failpoints import KNOWN

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run, another one every hour; set it to repeat a run."""

PODS = 5
COMPONENTS = {"kubelet": "kubelet", "scheduler": "scheduler", "runtime": "runtime", "store": "apiserver"}
"""Processes that die at a failpoint whose name begins so."""
RARE = {
    "store.compacting",
    "scheduler.claim-allocated",
    "scheduler.claim-protected",
    "scheduler.nominated",
    "scheduler.volumes-written",
}
"""Passed once in many minutes, or only for pods with claims or that preempt others."""
POINTS = sorted(item for item in KNOWN if item.partition(".")[0] in COMPONENTS and item not in RARE)

pytestmark = pytest.mark.timeout(400)


def sample():
    """One of the kubelet's and one of those whose own stories kill them everywhere, too."""
    chance = random.Random(SEED)
    kubelet = [point for point in POINTS if point.startswith("kubelet.")]
    return [chance.choice(kubelet), chance.choice([point for point in POINTS if point not in kubelet])]


@pytest.mark.parametrize("point", POINTS if SOAK else sample())
def test_a_component_killed_at_a_failpoint_resumes_from_there(cluster, a_pod, point):
    plan, died = cluster.prefix / "failpoints", cluster.prefix / "died"
    cluster.up(PODWIRE_FAILPOINTS_FILE=str(plan))
    kept = a_pod("kept")
    cluster.apply(kept)
    before = cluster.once(cluster.running(1))
    plan.write_text(f"{point}=2*off->kill({died})")
    cluster.apply(*(a_pod(f"pod-{number}") for number in range(PODS)))
    pids = cluster.once(cluster.running(1 + PODS))
    assert before.items() <= pids.items()
    cluster.output("delete", "pods", *(f"pod-{number}" for number in range(PODS)), "--wait=false")
    assert cluster.once(cluster.running(1)) == before
    cluster.delete_all()
    assert died.exists(), f"{point} was not passed"
    component = COMPONENTS[point.partition(".")[0]]
    cluster.eventually(lambda: cluster.restarts(component) == 1 and cluster.is_up(), f"{component} is there again")
    cluster.empty()
    cluster.down()
