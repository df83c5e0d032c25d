"""A reboot: no process, no namespace, no mount, no /run is left; `up` brings the same pods back."""

import pytest

pytestmark = pytest.mark.timeout(400)


def test_a_reboot_brings_the_same_pods_back(cluster, a_pod):
    volume = {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}]}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "m", "mountPath": "/m"}]}
    write = "date >> /v/starts; date >> /m/starts; trap 'exit 0' TERM; sleep 100000 & wait"
    cluster.up()
    crowd = [a_pod(f"pod-{number}") for number in range(3)]
    cluster.apply(
        *crowd,
        a_pod("disk", write, container=mounts, **volume),
        a_pod("done", "exit 0", restartPolicy="Never"),
        a_pod("never", restartPolicy="Never"),
    )
    cluster.eventually(lambda: phases(cluster) == {**STAYS, "done": "Succeeded", "never": "Running"}, "they run")
    uids = {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()}
    before = cluster.sandboxes()
    kubeconfig = cluster.copy_kubeconfig()

    cluster.reboot()
    cluster.up()

    wanted = {**STAYS, "done": "Succeeded", "never": "Failed"}
    cluster.eventually(lambda: phases(cluster) == wanted and restarted(cluster), "they are back", cluster.describe_pods)
    pods = cluster.pods()
    assert {name: pod["metadata"]["uid"] for name, pod in pods.items()} == uids
    assert "disk" in cluster.output("get", "pods", "--kubeconfig", kubeconfig)
    assert pods["done"]["status"]["containerStatuses"][0]["restartCount"] == 0
    assert pods["done"]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert pods["never"]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] != 0
    lives = {name: pods[name] for name in STAYS}
    now = cluster.sandboxes(ready=True)
    assert {name: len(each) for name, each in now.items()} == dict.fromkeys(STAYS, 1)
    assert not {item[0] for item in now.values()} & {item[0] for item in before.values()}, "a sandbox outlived it"
    cluster.addressed(lives)
    output = cluster.output("exec", "disk", "--", "wc", "-l", "/v/starts", "/m/starts")
    assert [line.split()[0] for line in output.splitlines()[:2]] == ["2", "1"], "the disk keeps what memory does not"
    events = cluster.get("events", "--field-selector", "reason=Rebooted")["items"]
    assert len(events) == 1
    cluster.delete_all()
    cluster.empty()
    cluster.down()


@pytest.mark.soak
def test_a_reboot_amidst_the_start_of_pods_and_another_one(cluster, a_pod):
    cluster.up()
    with cluster.applying(*(a_pod(f"pod-{number}") for number in range(6))):
        cluster.eventually(lambda: len(cluster.cri("ListContainers").containers) >= 2, "two containers are made")
        cluster.reboot()
        cluster.up()
    cluster.addressed(cluster.running(6))
    cluster.reboot()
    cluster.down()


STAYS = dict.fromkeys(("pod-0", "pod-1", "pod-2", "disk"), "Running")


def phases(cluster):
    return {name: pod.get("status", {}).get("phase") for name, pod in (cluster.pods() or {}).items()}


def restarted(cluster):
    """Whether all that stay were started once more and are ready again."""
    pods = cluster.pods() or {}
    counts = [pods[name]["status"]["containerStatuses"][0] for name in STAYS if name in pods]
    ready = all(count["ready"] and count["restartCount"] == 1 for count in counts)
    return ready and len(counts) == len(STAYS)
