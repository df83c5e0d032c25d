"""`podwire chaos`: random faults of all kinds on a cluster of its own, and the model that finds what is wrong."""

import os
import subprocess
import sys
import time

import pytest

from podwire.cluster.chaos.plan import Fault
from tests.stories.cluster.support import Cluster

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
SECONDS = 3600 if SOAK else 60
DISK_MEGABYTES = 192
"""Small enough to be filled in a moment."""


@pytest.fixture(name="disk_cluster")
def _disk_cluster(swept):
    """On a disk of its own, which chaos fills."""
    cluster = Cluster(megabytes=DISK_MEGABYTES)
    try:
        yield cluster
    finally:
        cluster.close()


def chaos(cluster, *words):
    """Starts chaos below the prefix of a cluster."""
    command = cluster.space.command(cluster.program, "chaos", *words, "--prefix", cluster.prefix)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.timeout(SECONDS + 600)
def test_a_cluster_keeps_its_promises_through_random_faults(disk_cluster):
    words = ("--seed", SEED % 10**9, "--minutes", SECONDS / 60, "--hardware", "two-numa", "--network-driver")
    words += ("--nodes", 2 if SOAK else 1)
    with chaos(disk_cluster, *words, "--only", ",".join(Fault)) as process:
        output, _ = process.communicate(timeout=SECONDS + 500)
    sys.stdout.write(output)
    assert process.returncode == 0, f"{output}\n{disk_cluster.logs()}"
    assert "without" not in output, "all faults are possible here"
    assert "no violation" in output


@pytest.mark.timeout(400)
def test_chaos_reports_a_violation_with_its_history_and_the_seed(cluster):
    """Somebody else deletes the pods that the model knows: that looks like lost writes."""
    cluster.up()
    namespace = ("-n", "chaos-5")

    def pods():
        return [item["metadata"]["name"] for item in (cluster.get("pods", *namespace) or {"items": []})["items"]]

    with chaos(cluster, "--seed", 5, "--duration", 60, "--only", "stop") as process:
        cluster.eventually(pods, "chaos has created a pod")
        while process.poll() is None:  # one that chaos deletes at the same moment proves nothing
            cluster.kubectl("delete", "pods", *namespace, "--all", "--now", "--wait=false")
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 1, output
    assert "VIOLATION: the API server contradicts what it said before\n  pod pod-" in output
    assert "was acknowledged with uid" in output
    assert "created pod-" in output
    assert "repeat with --seed 5 --duration 60 --only stop" in output
    assert cluster.status()["state"] == "up"
