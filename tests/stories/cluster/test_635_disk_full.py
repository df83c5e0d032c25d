"""No space left below the prefix: requests fail with that error, pods go on, and nothing needs a restart afterwards."""

import contextlib
import errno
import os

import pytest

pytestmark = pytest.mark.timeout(400)
NO_SPACE = os.strerror(errno.ENOSPC)
CRITICAL = {
    "priorityClassName": "system-node-critical",
    "tolerations": [{"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}],
}
"""The kubelet evicts other pods when it sees the full disk, which it looks at every ten seconds."""


def fill(cluster):
    """To the last byte: what others free meanwhile is taken, too."""
    chunk = bytes(4096)
    with (cluster.prefix / "fill").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(chunk)
    assert os.statvfs(cluster.prefix).f_bavail == 0


def free(cluster):
    (cluster.prefix / "fill").unlink()


def write_until_refused(cluster):
    """The error of the first write that is refused: some go into blocks that the store has already."""
    for number in range(100):
        done = cluster.kubectl("create", "configmap", f"big-{number}", f"--from-literal=a={'x' * 100_000}")
        if done.returncode:
            return done.stderr
    pytest.fail("all writes were accepted")


def test_a_full_disk_refuses_writes_by_its_name_and_is_as_before_afterwards(small_cluster, a_pod):
    cluster = small_cluster
    cluster.up()
    cluster.apply(a_pod("before", **CRITICAL))
    pids = cluster.once(cluster.running(1))
    fill(cluster)
    refused = write_until_refused(cluster)
    assert "no space left on the disk; only deletions are accepted" in refused, refused
    assert "before" in cluster.output("get", "pods"), "reading needs no space"
    assert "deleted" in cluster.output("delete", "configmap", "big-0"), "deleting has space of its own"
    free(cluster)
    cluster.apply(a_pod("after", **CRITICAL))
    assert pids.items() <= cluster.once(cluster.running(2)).items()
    cluster.delete_all()
    cluster.empty()
    cluster.down()


def test_a_full_disk_is_reported_and_the_pod_starts_once_space_is_free(small_cluster, a_pod):
    cluster = small_cluster
    cluster.up("--store", "memory://")
    cluster.apply(a_pod("before", **CRITICAL))
    pids = cluster.once(cluster.running(1))
    fill(cluster)
    cluster.apply(a_pod("waits", **CRITICAL))

    def reported():
        events = (cluster.get("events") or {"items": []})["items"]
        return [event for event in events if event["type"] == "Warning" and NO_SPACE in event["message"]]

    cluster.eventually(
        reported, "an event says that there is no space", lambda: cluster.kubectl("get", "events").stdout
    )
    free(cluster)
    assert pids.items() <= cluster.once(cluster.running(2)).items()
    cluster.output("delete", "pod", "waits")
    fill(cluster)
    cluster.delete_all()
    free(cluster)
    cluster.empty()
    cluster.down()
