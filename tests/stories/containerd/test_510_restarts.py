"""Kubelet and containerd go and come back while pods run on: nothing of the pods changes."""

import json

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.transports import grpc_client
from tests.eventually import eventually

FOREVER = "trap 'exit 0' TERM; sleep 100000 & wait"
SILENCE = "runtime sends no container events"


def pid_of(cluster, component):
    """Of a component of `podwire up`, as the machine counts; 0 while there is none."""
    status = json.loads((cluster.machine.root / "run/podwire/components/status.json").read_text())
    return next(item["pid"] for item in status["components"] if item["name"] == component)


def pids_of(cluster, pod):
    tasks = cluster.containerd.tasks()
    return [tasks[id_] for id_ in pod.ids]


def test_a_kubelet_that_comes_back_adopts_the_containers(cluster):
    pod = cluster.run(f"echo first; {FOREVER}")
    pids, before = pids_of(cluster, pod), pod.status
    old = pid_of(cluster, "kubelet")
    cluster.machine.output("kill", "-KILL", old)
    eventually(lambda: pid_of(cluster, "kubelet") not in (0, old))
    after = cluster.run(FOREVER)
    assert pids_of(cluster, pod) == pids
    assert pod.status["containerStatuses"] == before["containerStatuses"]
    eventually(lambda: pod.logs() == "first\n")
    assert pod.exec("true").returncode == 0
    for item in (pod, after):
        item.delete()
    eventually(lambda: not cluster.containerd.containers())


def test_a_restarted_kubelet_ends_pods_deleted_meanwhile(cluster):
    pod = cluster.run(FOREVER)
    old = pid_of(cluster, "kubelet")
    cluster.machine.output("kill", "-STOP", old)
    cluster.kubectl("delete", "pod", pod.name, "--force", "--grace-period=0")
    cluster.machine.output("kill", "-KILL", old)
    eventually(lambda: not cluster.containerd.containers())


def test_containerd_goes_and_comes_back_under_the_kubelet(cluster):
    def ready():
        [condition] = [
            condition for condition in cluster.node()["status"]["conditions"] if condition["type"] == "Ready"
        ]
        return condition

    pod = cluster.run(FOREVER)
    pids = pids_of(cluster, pod)
    cluster.containerd.kill()
    eventually(lambda: ready()["status"] == "False")
    assert "container runtime is down" in ready()["message"]
    cluster.containerd.start()
    eventually(lambda: ready()["status"] == "True")
    assert pids_of(cluster, pod) == pids
    assert pod.status["containerStatuses"][0]["restartCount"] == 0
    assert pod.exec("true").returncode == 0
    pod.delete()
    eventually(lambda: not cluster.containerd.containers())


async def test_pods_of_another_kubelet_are_left_alone(cluster):
    """Somebody else's pod, with all that a kubelet's pods have, in the same containerd."""
    labels = {"io.kubernetes.pod.name": "theirs", "io.kubernetes.pod.namespace": "x", "io.kubernetes.pod.uid": "u-1"}
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name="theirs", namespace="x", uid="u-1"),
        labels=labels,
        log_directory="/var/log/pods/theirs",
    )
    async with grpc_client.connect(cluster.machine.root / "run/containerd/containerd.sock") as cri:
        request = pb.RunPodSandboxRequest(config=config)
        made = await cri.call(methods.RUN_POD_SANDBOX, request, timeout=60)
        old = pid_of(cluster, "kubelet")
        cluster.machine.output("kill", "-KILL", old)
        eventually(lambda: pid_of(cluster, "kubelet") not in (0, old))
        ours = cluster.run(FOREVER)
        ours.delete()
        eventually(lambda: len(cluster.containerd.containers()) == 1)
        assert set(cluster.containerd.tasks()) == {made.pod_sandbox_id}
        for method in (methods.STOP_POD_SANDBOX, methods.REMOVE_POD_SANDBOX):
            await cri.call(method, method.request(pod_sandbox_id=made.pod_sandbox_id), timeout=60)


def test_missing_events_of_containerd_are_logged_once(cluster):
    log = cluster.machine.root / "var/log/podwire/kubelet.log"
    eventually(lambda: SILENCE in log.read_text().rpartition("kubelet: kubelet is running")[2])
    assert log.read_text().count(SILENCE) == log.read_text().count("kubelet: kubelet is running")
