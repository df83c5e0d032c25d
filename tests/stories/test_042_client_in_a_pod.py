"""A program that uses `podwire.client` in a pod: it finds the cluster, its namespace and its rights by itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import Cluster

IMAGE = "podwire.local/podwire:latest"
PROGRAM = (Path(__file__).parent / "programs/in_a_pod.py").read_text(encoding="utf-8")
NAMESPACE = "team"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    try:
        made.podwire("image build-root --podwire")
        made.podwire("up --detach")
        made.kubectl("create", "namespace", NAMESPACE)
        eventually(lambda: "default" in made.kubectl("-n", NAMESPACE, "get", "serviceaccounts", "-o", "name"), 60)
        made.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects()}))
        yield made
    finally:
        made.close()


def objects() -> list[dict[str, Any]]:
    """The program, its service account, and the rights that it has in its own namespace."""
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create"]}
    subject = {"kind": "ServiceAccount", "name": "worker", "namespace": NAMESPACE}
    reference = {"apiGroup": rbac, "kind": "Role", "name": "maps"}
    return [
        placed("v1", "ServiceAccount", "worker"),
        placed("v1", "ConfigMap", "program", data={"program.py": PROGRAM}),
        placed(f"{rbac}/v1", "Role", "maps", rules=[rule]),
        placed(f"{rbac}/v1", "RoleBinding", "maps", subjects=[subject], roleRef=reference),
    ]


def placed(api_version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "program",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "/program/program.py"],
        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
    }
    whole = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": "program"}}],
        **spec,
    }
    return placed("v1", "Pod", name, spec=whole)


def start(cluster: Cluster, made: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))


def log(cluster: Cluster, name: str) -> list[str]:
    phase = cluster.kubectl("-n", NAMESPACE, "get", "pod", name, "-o", "jsonpath={.status.phase}")
    return [] if phase == "Pending" else cluster.kubectl("-n", NAMESPACE, "logs", name).splitlines()


def end(cluster: Cluster, name: str, phase: str) -> list[str]:
    """Returns the log of a pod that has ended so."""
    wait = f"--for=jsonpath={{.status.phase}}={phase}"
    done = cluster.run(
        "kubectl", "--kubeconfig", cluster.prefix / "var/lib/podwire/kubeconfig", "-n", NAMESPACE, "wait", wait,
        f"pod/{name}", "--timeout=60s",
    )  # fmt: skip
    lines = log(cluster, name)
    assert done.returncode == 0, "\n".join([done.stderr, *lines])
    return lines


def test_1_it_lists_creates_and_watches_with_the_rights_of_its_service_account(cluster: Cluster):
    start(cluster, pod("worker", serviceAccountName="worker"))
    eventually(lambda: "watching" in log(cluster, "worker"), 60)
    cluster.kubectl("-n", NAMESPACE, "create", "configmap", "stop", "--from-literal=from=outside")
    assert end(cluster, "worker", "Succeeded") == [
        "system:serviceaccount:team:worker in team",
        "listed kube-root-ca.crt, program",
        "watching",
        "added by-the-pod",
        "added stop from outside",
        "list secrets: 403 Forbidden",
        "get configmap: 403 Forbidden",
        "delete configmap: 403 Forbidden",
        "list configmaps of default: 403 Forbidden",
        "create configmap in default: 403 Forbidden",
    ]
    created = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "configmap", "by-the-pod", "-o", "json"))
    assert created["data"] == {"from": "inside"}
    assert "by-the-pod" not in cluster.kubectl("-n", "default", "get", "configmaps", "-o", "name")


def test_2_without_a_service_account_token_it_says_what_it_looked_for(cluster: Cluster):
    start(cluster, pod("anonymous", automountServiceAccountToken=False))
    assert end(cluster, "anonymous", "Failed")[-1].endswith(
        "this is not a pod with a service account, and /var/lib/podwire/kubeconfig does not exist"
    )
