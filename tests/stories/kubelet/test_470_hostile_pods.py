"""Hostile pods on a real node: what they do to their files, ports and processes stays their own problem."""

import json
from pathlib import Path

import pytest

DEEP = "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done"


@pytest.fixture(scope="module")
def node(running, template):
    with running(template, "--pod-max-pids", 64, our_plugins=True) as made:
        yield made


def kubelet_peak(node):
    """The largest resident memory of the kubelet so far, in bytes."""
    pid = node.kubelet.pid
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_a_container_that_makes_its_etc_hosts_huge_restarts_and_the_kubelet_stays_small(node, pod, container, name):
    script = "if [ -f /v/again ]; then sleep 3600; fi; touch /v/again; truncate -s 2G /etc/hosts; exit 1"
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    node.make(pod(name, containers=[container("c", script, **mounts)], volumes=[{"name": "v", "emptyDir": {}}]))

    def restarts():
        return [status["restartCount"] for status in node.get(f"pod {name}")["status"].get("containerStatuses", ())]

    node.eventually(lambda: restarts() == [1], restarts)
    node.wait(f"pod/{name}", "condition=Ready")
    assert name in node.exec(name, "cat /etc/hosts")
    assert kubelet_peak(node) < 512 << 20


def test_a_pod_with_directories_deeper_than_a_recursion_is_measured_and_deleted(node, pod, container, name):
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    script = f"cd /v; {DEEP}; mkdir /r; cd /r; {DEEP}; sleep 3600"
    node.make(pod(name, containers=[container("c", script, **mounts)], volumes=[{"name": "v", "emptyDir": {}}]))
    node.wait(f"pod/{name}", "condition=Ready")

    def inodes():
        summary = json.loads(node("get --raw /api/v1/nodes/node/proxy/stats/summary"))
        used = {pod["podRef"]["name"]: pod["containers"][0]["rootfs"]["inodesUsed"] for pod in summary["pods"]}
        return used.get(name, 0)

    node.eventually(lambda: inodes() > 1500, inodes)
    uid = node.get(f"pod {name}")["metadata"]["uid"]
    node(f"delete pod {name} --grace-period=1 --wait=true --timeout=60s")
    assert not (node.root / "pods" / uid).exists()


def test_a_host_port_of_the_kubelet_is_refused(node, pod, container, name):
    ports = [{"containerPort": 80, "hostPort": 10250}]
    node.make(pod(name, containers=[container("c", ports=ports)]))
    node.eventually(lambda: node.get(f"pod {name}")["status"]["phase"] == "Failed")
    status = node.get(f"pod {name}")["status"]
    assert status["reason"] == "NodePorts"
    assert "TCP port 10250 is in use by the node itself" in status["message"]
    assert node("get --raw /api/v1/nodes/node/proxy/healthz") == "ok"


def test_a_fork_bomb_ends_at_the_limit_of_its_pod(node, pod, container, name):
    script = "sleep 3600 & i=0; while [ $i -lt 500 ]; do sleep 3600 & i=$((i+1)); done; sleep 3600"
    node.make(pod(f"{name}-other"))
    node.wait(f"pod/{name}-other", "condition=Ready")
    node.make(pod(name, containers=[container("c", script), container("d")]))
    node.eventually(lambda: "can't fork" in node.run(f"logs {name} -c c").stdout)
    assert node.run(f"exec {name}-other -- echo works").stdout == "works\n"
    pods = node.cri("ListPodSandboxStats", filter={"label_selector": {"io.kubernetes.pod.name": name}}).stats
    assert [0 < stats.linux.process.process_count.value <= 64 for stats in pods] == [True]


@pytest.mark.skipif(Path("/sys/kernel/security/apparmor").exists(), reason="the kernel has AppArmor")
def test_an_apparmor_profile_is_refused_by_a_kernel_without_apparmor(node, pod, name):
    made = pod(name)
    made["spec"]["securityContext"] = {"appArmorProfile": {"type": "RuntimeDefault"}}
    node.make(made)
    node.eventually(lambda: node.get(f"pod {name}")["status"]["phase"] == "Failed")
    status = node.get(f"pod {name}")["status"]
    assert status["reason"] == "AppArmor"
    assert "Cannot enforce AppArmor: AppArmor is not enabled on the host" in status["message"]


def test_root_of_a_pod_with_its_own_users_is_an_unprivileged_user_of_the_node(node, pod, container, name):
    node.prefix.chmod(0o711)  # as the directories above /run are
    node.make(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {"key": "value"},
        }
    )
    mounts = {"volumeMounts": [{"name": "e", "mountPath": "/e"}, {"name": "s", "mountPath": "/s"}]}
    volumes = [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": name, "defaultMode": 0o400}}]
    for number in (1, 2):
        node.make(pod(f"{name}-{number}", containers=[container("c", **mounts)], volumes=volumes, hostUsers=False))
    firsts = set()
    for number in (1, 2):
        node.wait(f"pod/{name}-{number}", "condition=Ready")
        inside, first, count = node.exec(f"{name}-{number}", "cat /proc/self/uid_map").split()
        assert (inside, count) == ("0", "65536")
        firsts.add(first)
        assert node.exec(f"{name}-{number}", "cat /s/key; touch /e/x; stat -c %u /e/x /s/key /etc/hosts").split() == [
            "value0", "0", "0",
        ]  # fmt: skip
        assert Path(f"/proc/{node.pid(f'{name}-{number}')}").stat().st_uid == int(first)
    assert len(firsts) == 2
    assert "0" not in firsts
