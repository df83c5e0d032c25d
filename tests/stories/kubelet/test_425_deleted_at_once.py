"""Pods that are deleted while they start: whenever that is, nothing of them stays, and nothing else is touched."""

import json
import sys

import pytest

DELAYS = range(0, 301, 5)
"""Milliseconds between the creation of a pod and its deletion."""
FAILPOINTS = [
    "kubelet.sandbox-run",
    "kubelet.container-created",
    "kubelet.container-started",
    "kubelet.status-sent",
]


def churn(node, pod, name, grace, delays):
    """Create and delete pods; returns their uids."""
    words = [sys.executable, "-m", "tests.stories.kubelet.churn", node.kubeconfig, json.dumps(pod(name)), grace]
    return node.space.output(*words, *delays).split()


def ended(node, uids):
    """Wait until neither the API nor the node has anything of these pods."""
    node.eventually(lambda: not node.get("pods")["items"])
    node.eventually(lambda: not node.left(), node.left)


def play(node, pod, name, grace, delays):
    ended(node, churn(node, pod, name, grace, delays))


@pytest.mark.parametrize("grace", [0, 1, 30])
def test_a_pod_that_is_deleted_soon_after_its_creation_leaves_nothing(node, pod, name, grace):
    play(node, pod, name, grace, DELAYS[::6])


@pytest.mark.soak
@pytest.mark.parametrize("grace", [0, 1, 30])
def test_pods_that_are_deleted_after_every_delay_leave_nothing(node, pod, name, grace):
    play(node, pod, name, grace, [*DELAYS, *DELAYS])


def killed_kubelet(node, pod, name, failpoint, grace):
    """A kubelet dies at a failpoint while a pod starts, and the pod is deleted before the next one."""
    node.kubelet.stop()
    node.kubelet.start(PODWIRE_FAILPOINTS=f"{failpoint}=kill")
    node.wait("node/node", "condition=Ready")
    try:
        node.make(pod(name))
        node.eventually(lambda: not node.kubelet.alive)
        node(f"delete pod {name} --wait=false --grace-period={grace}", *(["--force"] if not grace else []))
    finally:
        node.kubelet.kill()
        node.kubelet.start()
    ended(node, [])


def test_a_pod_that_is_force_deleted_while_its_kubelet_is_dead_leaves_nothing(node, pod, name):
    killed_kubelet(node, pod, name, "kubelet.container-created", 0)


@pytest.mark.soak
@pytest.mark.parametrize("grace", [0, 1, 30])
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_pod_that_is_deleted_after_its_kubelet_died_at_any_step_leaves_nothing(node, pod, name, failpoint, grace):
    killed_kubelet(node, pod, name, failpoint, grace)


def test_a_pod_that_runs_is_not_touched(node, pod, name):
    node.make(pod(f"{name}-stays"))
    node.wait(f"pod/{name}-stays", "condition=Ready")
    (sandbox,) = node.sandboxes(f"{name}-stays")
    uids = churn(node, pod, name, 1, [0, 40, 80, 120])
    node.eventually(lambda: len(node.get("pods")["items"]) == 1)
    node.eventually(lambda: not [leak for leak in node.left() if any(uid in leak for uid in uids)], node.left)
    assert node.sandboxes(f"{name}-stays") == [sandbox]
    assert node.get(f"pod {name}-stays")["status"]["containerStatuses"][0]["restartCount"] == 0
    node(f"delete pod {name}-stays --grace-period=1")
