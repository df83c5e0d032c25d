"""Workloads on `podwire up --nodes 2`, driven by kubectl: Deployments, DaemonSets, StatefulSets, ReplicaSets."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import Cluster

IMAGE = "podwire.local/busybox:latest"
SAME_IMAGE = "podwire.local/busybox"
"""Another text for the same image: a new template without a second image."""
SLEEP = ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.podwire("up --detach --nodes 2")
    eventually(lambda: "default" in made.kubectl("get", "serviceaccounts", "-o", "name"), 60)
    yield made
    made.close()


def workload(kind: str, name: str, **spec: Any) -> str:
    container = {"name": "main", "image": IMAGE, "command": SLEEP}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **spec},
        }
    )


def pods(cluster: Cluster, app: str) -> list[dict[str, Any]]:
    found = json.loads(cluster.kubectl("get", "pods", "-l", f"app={app}", "-o", "json"))["items"]
    return sorted(found, key=lambda pod: pod["metadata"]["name"])


def images(cluster: Cluster, app: str) -> set[str]:
    return {
        pod["spec"]["containers"][0]["image"]
        for pod in pods(cluster, app)
        if not pod["metadata"].get("deletionTimestamp")
    }


def test_a_deployment_rolls_out_back_and_away(cluster: Cluster):
    created = cluster.run(
        "kubectl", "--kubeconfig", cluster.prefix / "var/lib/podwire/kubeconfig",
        "create", "deployment", "web", f"--image={IMAGE}", "--replicas=3", "--", *SLEEP,
    )  # fmt: skip
    assert (created.returncode, created.stderr) == (0, "")
    assert "successfully rolled out" in cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert cluster.kubectl("get", "deployment", "web", "--no-headers").split()[:4] == ["web", "3/3", "3", "3"]

    cluster.kubectl("scale", "deployment/web", "--replicas=5")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert len(pods(cluster, "web")) == 5

    cluster.kubectl("set", "image", "deployment/web", f"busybox={SAME_IMAGE}")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert images(cluster, "web") == {SAME_IMAGE}
    history = cluster.kubectl("rollout", "history", "deployment/web")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]

    assert "rolled back" in cluster.kubectl("rollout", "undo", "deployment/web")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert images(cluster, "web") == {IMAGE}
    history = cluster.kubectl("rollout", "history", "deployment/web")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["2", "3"]
    assert SAME_IMAGE in cluster.kubectl("rollout", "history", "deployment/web", "--revision=2")

    cluster.kubectl("rollout", "pause", "deployment/web")
    cluster.kubectl("set", "env", "deployment/web", "STEP=4")
    assert "3" in cluster.kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.annotations}")
    assert not any("env" in pod["spec"]["containers"][0] for pod in pods(cluster, "web"))
    cluster.kubectl("rollout", "resume", "deployment/web")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    eventually(lambda: all("env" in pod["spec"]["containers"][0] for pod in pods(cluster, "web")), 30)

    described = cluster.kubectl("describe", "deployment", "web")
    assert "NewReplicaSetAvailable" in described
    assert "Scaled up replica set" in described
    cluster.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
    assert pods(cluster, "web") == []
    assert "No resources" in cluster.run(
        "kubectl", "--kubeconfig", cluster.prefix / "var/lib/podwire/kubeconfig", "get", "replicasets"
    ).stderr  # fmt: skip


def test_a_daemon_set_has_a_pod_on_each_node_and_is_undone(cluster: Cluster):
    cluster.kubectl("apply", "-f", "-", stdin=workload("DaemonSet", "agent"))
    cluster.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s")
    assert {pod["spec"]["nodeName"] for pod in pods(cluster, "agent")} == {"node-1", "node-2"}

    cluster.kubectl("set", "image", "daemonset/agent", f"main={SAME_IMAGE}")
    cluster.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s")
    assert images(cluster, "agent") == {SAME_IMAGE}
    assert "rolled back" in cluster.kubectl("rollout", "undo", "daemonset/agent")
    cluster.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s")
    assert images(cluster, "agent") == {IMAGE}

    cluster.kubectl("taint", "node", "node-2", "dedicated=x:NoExecute")
    eventually(lambda: [pod["spec"]["nodeName"] for pod in pods(cluster, "agent")] == ["node-1"], 30)
    cluster.kubectl("taint", "node", "node-2", "dedicated-")
    cluster.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s")
    eventually(lambda: len(pods(cluster, "agent")) == 2, 30)
    cluster.kubectl("delete", "daemonset", "agent", "--cascade=foreground", "--timeout=60s")
    assert pods(cluster, "agent") == []


def test_a_stateful_set_has_names_and_replaces_pods_in_order(cluster: Cluster):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "peers"},
        "spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 80}]},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(service))
    cluster.kubectl("apply", "-f", "-", stdin=workload("StatefulSet", "db", serviceName="peers", replicas=3))
    cluster.kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
    assert [pod["metadata"]["name"] for pod in pods(cluster, "db")] == ["db-0", "db-1", "db-2"]
    assert cluster.kubectl("exec", "db-1", "--", "hostname").strip() == "db-1"
    assert "db-1.peers.default.svc.cluster.local" in cluster.kubectl("exec", "db-1", "--", "cat", "/etc/hosts")

    first = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods(cluster, "db")}
    cluster.kubectl("rollout", "restart", "statefulset/db")
    cluster.kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
    second = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods(cluster, "db")}
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())
    assert "rolled back" in cluster.kubectl("rollout", "undo", "statefulset/db")
    cluster.kubectl("rollout", "status", "statefulset/db", "--timeout=60s")

    cluster.kubectl("scale", "statefulset/db", "--replicas=1")
    eventually(lambda: [pod["metadata"]["name"] for pod in pods(cluster, "db")] == ["db-0"], 30)
    cluster.kubectl("delete", "statefulset", "db", "--cascade=foreground", "--timeout=60s")
    cluster.kubectl("delete", "service", "peers")
    assert pods(cluster, "db") == []


def test_replicas_that_no_node_holds_stay_pending_and_cost_nothing(cluster: Cluster):
    manifest = json.loads(workload("ReplicaSet", "many", replicas=60))
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    eventually(lambda: len(pods(cluster, "many")) == 60, 60)
    assert {pod["status"]["phase"] for pod in pods(cluster, "many")} == {"Pending"}
    eventually(lambda: "Insufficient cpu" in cluster.kubectl("get", "events"), 60)
    cluster.kubectl("scale", "replicaset/many", "--replicas=1")
    eventually(lambda: len(pods(cluster, "many")) == 1, 60)
    cluster.kubectl("delete", "replicaset", "many", "--cascade=orphan", "--timeout=60s")
    assert len(pods(cluster, "many")) == 1
    cluster.kubectl("delete", "pods", "-l", "app=many")


def test_a_selector_that_does_not_match_its_template_is_refused(cluster: Cluster):
    manifest = json.loads(workload("Deployment", "odd"))
    manifest["spec"]["selector"]["matchLabels"]["app"] = "other"
    refused = cluster.run(
        "kubectl", "--kubeconfig", cluster.prefix / "var/lib/podwire/kubeconfig", "apply", "-f", "-",
        stdin=json.dumps(manifest),
    )  # fmt: skip
    assert refused.returncode == 1
    assert "`selector` does not match template `labels`" in refused.stderr
