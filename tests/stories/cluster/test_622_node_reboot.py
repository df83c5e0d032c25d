"""`podwire node reboot`: a node loses all processes, mounts, links and its /run, while the control plane goes on."""

import pytest

pytestmark = pytest.mark.timeout(400)


def test_a_rebooted_node_runs_the_same_pods_again(cluster, a_pod):
    cluster.up("--hardware", "two-numa", "--network-driver")
    cluster.apply(a_pod("one"), a_pod("two"))
    before = cluster.running(2)
    sandboxes, boot = cluster.sandboxes(), boot_id(cluster)
    apiserver, kubelet = cluster.pid("apiserver"), cluster.pid("kubelet")

    done = cluster.podwire("node", "reboot", "node-1")
    assert done.returncode == 0, done.stderr

    cluster.eventually(lambda: cluster.pid("kubelet") not in (0, kubelet), "the supervisor starts the kubelet again")
    cluster.eventually(lambda: boot_id(cluster) not in ("", boot), "the kubelet reports another boot id")
    cluster.eventually(lambda: restarts(cluster) == {"one": 1, "two": 1}, "both run again", cluster.describe_pods)
    after = cluster.running(2)
    assert {name: pod["metadata"]["uid"] for name, pod in after.items()} == {
        name: pod["metadata"]["uid"] for name, pod in before.items()
    }
    now = cluster.sandboxes(ready=True)
    assert {name: len(ids) for name, ids in now.items()} == {"one": 1, "two": 1}
    assert not {ids[0] for ids in now.values()} & {ids[0] for ids in sandboxes.values()}, "a sandbox outlived it"
    assert cluster.pid("apiserver") == apiserver, "the control plane was not rebooted"
    assert len(cluster.get("events", "--field-selector", "reason=Rebooted")["items"]) == 1
    cluster.addressed(after)
    cluster.initial_mounts.append("/proc/sys/kernel/random/boot_id")
    cluster.delete_all()
    cluster.empty()
    cluster.down()


def test_reboot_says_what_it_cannot_do(cluster):
    cluster.up()
    done = cluster.podwire("node", "reboot", "node-7")
    assert done.returncode != 0
    assert "no node node-7; the nodes are node-1" in done.stderr
    cluster.kill_everything()
    done = cluster.podwire("node", "reboot", "node-1")
    assert done.returncode != 0
    assert "the cluster is not up" in done.stderr
    cluster.down()


def boot_id(cluster):
    node = cluster.get("nodes", "node-1")
    return node["status"]["nodeInfo"]["bootID"] if node else ""


def restarts(cluster):
    """Restarts of the containers that are ready."""
    statuses = {name: pod["status"].get("containerStatuses") or [{}] for name, pod in (cluster.pods() or {}).items()}
    return {name: status[0].get("restartCount") for name, status in statuses.items() if status[0].get("ready")}
