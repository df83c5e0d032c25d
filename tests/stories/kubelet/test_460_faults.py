"""Kubelets, runtimes and API servers die and come back; what runs goes on, what was missed is made up for."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture
def whole(node):
    """Every process that the story killed runs again afterwards."""
    yield node
    if not node.runtime.alive:
        node.runtime.start()
    for daemon in (node.api, node.kubelet, node.scheduler):
        if not daemon.alive:
            daemon.start()
    node.eventually(lambda: node.run("get --raw /readyz").returncode == 0)
    node.wait("node/node", "condition=Ready")


def ready(node, pod, *names):
    node.make(*(pod(name) for name in names))
    node.wait(" ".join(f"pod/{name}" for name in names), "condition=Ready")


def marks(node, name):
    """Properties that must stay the same of a pod that goes on."""
    status = node.get(f"pod {name}")["status"]
    (of,) = status["containerStatuses"]
    return node.pid(name), status["podIP"], of["containerID"], of["restartCount"], status["startTime"]


def test_pods_go_on_without_a_kubelet_and_the_next_one_takes_them_over(node, pod, name, whole):
    ready(node, pod, name)
    before = marks(node, name)
    node.kubelet.kill()
    node.kubelet.start()
    later = f"{name}-later"
    ready(node, pod, later)
    assert marks(node, name) == before


def test_pods_deleted_without_a_kubelet_are_ended_by_the_next_one(node, pod, name, whole):
    asked, gone = f"{name}-asked", f"{name}-gone"
    ready(node, pod, asked, gone)
    pids = [node.pid(item) for item in (asked, gone)]
    uids = [node.get(f"pod {item}")["metadata"]["uid"] for item in (asked, gone)]
    node.kubelet.kill()
    node(f"delete pod {asked} --wait=false")
    node(f"delete pod {gone} --force --grace-period=0")
    assert all(map(node.alive, pids))
    node.kubelet.start()
    node.wait(f"pod/{asked}", "delete")
    node.eventually(lambda: not any(map(node.alive, pids)))
    node.eventually(lambda: not node.sandboxes(asked) + node.sandboxes(gone))
    node.eventually(lambda: not [item for item in node.left() if any(uid in item for uid in uids)])


def test_an_exit_during_kubelet_downtime_is_reported_afterwards(node, pod, name, whole):
    node.make(pod(name, "trap 'exit 6' TERM; while :; do sleep 0.05; done", restartPolicy="Never"))
    node.wait(f"pod/{name}", "condition=Ready")
    pid = node.pid(name)
    node.kubelet.kill()
    node.space.output("kill", "-TERM", pid)
    node.eventually(lambda: not node.alive(pid))
    node.kubelet.start()
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Failed")
    (status,) = node.get(f"pod {name}")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 6


def test_a_runtime_may_be_restarted_under_its_kubelet(node, pod, name, whole):
    ready(node, pod, name)
    before = marks(node, name)
    node.runtime.kill()
    node.wait("node/node", "condition=Ready=False")
    node.runtime.start()
    node.wait("node/node", "condition=Ready")
    later = f"{name}-later"
    ready(node, pod, later)
    assert marks(node, name) == before
    node(f"delete pod {name} {later}")


def test_exec_works_while_the_runtime_restarts_and_says_so_when_it_is_away(node, pod, name, whole):
    ready(node, pod, name)
    node.runtime.kill()
    done = node.run(f"exec {name} -- echo here")
    assert done.returncode == 1
    assert "the container runtime of this node is not reachable" in done.stderr
    for words in (f"exec {name} -- echo here", f"exec -i {name} -- echo here"):
        node.runtime.kill()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(node.run, words)
            node.runtime.start()
            assert asked.result().stdout == "here\n", asked.result().stderr


def test_changes_during_an_api_server_outage_are_reported_afterwards(node, pod, name, whole):
    """Its store is in memory, so it is only stopped for a while."""
    node.make(pod(name, "trap 'exit 6' TERM; while :; do sleep 0.05; done", restartPolicy="Never"))
    node.wait(f"pod/{name}", "condition=Ready")
    pid = node.pid(name)
    node.api.pause()
    try:
        node.space.output("kill", "-TERM", pid)
        node.eventually(lambda: not node.alive(pid))
    finally:
        node.api.go_on()
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Failed")
    (status,) = node.get(f"pod {name}")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 6


def test_a_container_that_is_killed_from_outside_starts_again(node, pod, name):
    ready(node, pod, name)
    node.space.output("kill", "-KILL", node.pid(name))
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].restartCount}=1")
    node.wait(f"pod/{name}", "condition=Ready")
    (status,) = node.get(f"pod {name}")["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 137


def test_a_sandbox_that_is_removed_from_outside_is_made_again(node, pod, name):
    ready(node, pod, name)
    before = marks(node, name)
    (sandbox,) = node.sandboxes(name)
    node.cri("StopPodSandbox", pod_sandbox_id=sandbox)
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].restartCount}=1")
    node.wait(f"pod/{name}", "condition=Ready")
    assert marks(node, name)[2] != before[2]


def test_a_pod_lost_by_the_runtime_restarts_and_keeps_its_restart_count(node, pod, name):
    ready(node, pod, name)
    (sandbox,) = node.sandboxes(name)
    node.cri("StopPodSandbox", pod_sandbox_id=sandbox)
    node.cri("RemovePodSandbox", pod_sandbox_id=sandbox)
    node.eventually(lambda: node.get(f"pod {name}")["status"]["containerStatuses"][0]["restartCount"] > 0)
    node.wait(f"pod/{name}", "condition=Ready")
    assert node.sandboxes(name) != [sandbox]


def test_two_kubelets_do_not_share_a_directory(node):
    words = [item for item in node.kubelet.command if item not in ("setpriv", "--pdeathsig", "KILL")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"another kubelet uses {node.root}" in done.stderr


def test_a_node_that_was_deleted_comes_back(node, pod, name):
    ready(node, pod, name)
    old = node.get("node node")["metadata"]["uid"]
    node("delete node node")
    node.eventually(lambda: node.run("get node node").returncode == 0)
    node.wait("node/node", "condition=Ready")
    assert node.get("node node")["metadata"]["uid"] != old
    ready(node, pod, f"{name}-later")


def test_a_kubelet_that_is_asked_to_stop_leaves_its_pods_running(node, pod, name, whole):
    ready(node, pod, name)
    before = marks(node, name)
    assert node.kubelet.stop() == 0
    assert node.alive(before[0])
    node.kubelet.start()
    ready(node, pod, f"{name}-later")
    assert marks(node, name) == before
