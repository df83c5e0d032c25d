"""kill -9 of everything but the containers, in the middle of a crowd's start: `up` goes on where it was."""

import os
import random
import sys
import time

import pytest

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run, another one every hour; set it to repeat a run."""

PODS = 20 if SOAK else 10
ROUNDS = 10 if SOAK else 1

pytestmark = pytest.mark.timeout(400)


def start_amidst(cluster, a_pod, chance):
    """Have all made, and stop in the middle of it: so many containers are there."""
    count = chance.randrange(PODS)
    with cluster.applying(*(a_pod(f"pod-{number}") for number in range(PODS))):
        made = lambda: len(cluster.cri("ListContainers").containers) >= count  # noqa: E731 - shorter than its use
        cluster.eventually(made, f"{count} containers are made")
        time.sleep(chance.random() * 0.05)
        seen = cluster.pids(), addresses(cluster)
        cluster.kill_everything()
        sys.stdout.write(f"{len(seen[0])} containers ran\n")
        cluster.up()
    return seen


def addresses(cluster):
    """Of sandboxes that the runtime has, by their id."""
    found = {}
    for ids in cluster.sandboxes().values():
        for item in ids:
            found[item] = cluster.cri("PodSandboxStatus", pod_sandbox_id=item).status.network.ip
    return {id_: ip for id_, ip in found.items() if ip}


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_up_resumes_after_all_components_crashed(cluster, a_pod, round_):
    seed = SEED + round_
    sys.stdout.write(f"PODWIRE_CRASH_SEED={seed}\n")
    cluster.up()
    kubeconfig, slot = cluster.copy_kubeconfig(), cluster.status()["slot"]
    before, had = start_amidst(cluster, a_pod, random.Random(seed))
    assert cluster.status()["slot"] == slot
    assert "node-1" in cluster.output("get", "nodes", "--kubeconfig", kubeconfig)
    pids = cluster.once(cluster.running(PODS))
    assert before.items() <= pids.items(), "a container that ran lost its process"
    assert had.items() <= addresses(cluster).items(), "a pod that had an address has another"
    cluster.delete_all()
    cluster.empty()
    cluster.down()


@pytest.mark.soak
def test_a_supervisor_that_is_killed_takes_its_components_along_and_no_container(cluster, a_pod):
    cluster.up()
    cluster.apply(a_pod("one"))
    before = cluster.once(cluster.running(1))
    cluster.signal("supervisor")
    cluster.eventually(lambda: not cluster.processes(), "all components are gone")
    cluster.up()
    assert cluster.once(cluster.running(1)) == before
    cluster.down()
