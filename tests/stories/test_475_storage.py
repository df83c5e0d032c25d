"""Storage on `podwire up --nodes 2`, driven by kubectl: claims of a StatefulSet, reclaim, protection, refusals."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import SECONDS, Cluster

IMAGE = "podwire.local/busybox:latest"
SLEEP = ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.podwire("up --detach --nodes 2")
    eventually(lambda: "default" in made.kubectl("get", "serviceaccounts", "-o", "name"), 60)
    yield made
    made.close()


def claim(name: str, size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    given = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": given}


def pod(name: str, *claims: str, volumes: Any = (), **spec: Any) -> dict[str, Any]:
    named = [{"name": row, "persistentVolumeClaim": {"claimName": row}} for row in claims]
    mounts = [{"name": row["name"], "mountPath": f"/{row['name']}"} for row in (*named, *volumes)]
    container = {"name": "main", "image": IMAGE, "command": SLEEP, "volumeMounts": mounts}
    given = {"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": [*named, *volumes], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": given}


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def ready(cluster: Cluster, *names: str) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *(f"pod/{name}" for name in names))


def field(cluster: Cluster, kind: str, name: str, path: str) -> str:
    return cluster.kubectl("get", kind, name, "-o", f"jsonpath={{{path}}}")


def directory(cluster: Cluster, claim: str) -> Path:
    """The directory of a claim, as the host sees it."""
    name = field(cluster, "pvc", claim, ".spec.volumeName")
    terms = json.loads(cluster.kubectl("get", "pv", name, "-o", "json"))["spec"]["nodeAffinity"]["required"]
    node = terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0]
    home = cluster.prefix if node == "node-1" else cluster.prefix / "var/lib/podwire/nodes" / node
    return home / "var/lib/podwire/volumes" / name


def restart(cluster: Cluster) -> None:
    """The supervisor and all components end and start again."""
    supervisor = cluster.components()["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGTERM)
    eventually(lambda: not Path(f"/proc/{supervisor}").exists(), SECONDS)
    cluster.podwire("up --detach --nodes 2")


def test_a_new_cluster_has_a_default_class(cluster: Cluster):
    row = cluster.kubectl("get", "storageclass", "--no-headers").split()
    assert row[:6] == ["local-path", "(default)", "podwire.dev/local-path", "Delete", "WaitForFirstConsumer", "true"]


def test_the_data_of_a_stateful_set_outlive_its_pods_and_the_cluster(cluster: Cluster):
    mount = {"name": "data", "mountPath": "/data"}
    container = {"name": "main", "image": IMAGE, "command": SLEEP, "volumeMounts": [mount]}
    security = {"runAsUser": 1000, "fsGroup": 2000}
    apart = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    spec = {
        "serviceName": "db",
        "replicas": 2,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {
                "containers": [container],
                "terminationGracePeriodSeconds": 1,
                "securityContext": security,
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            },
        },
        "volumeClaimTemplates": [claim("data")],
    }
    apply(cluster, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec})
    cluster.kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
    nodes = {name: field(cluster, "pod", name, ".spec.nodeName") for name in ("db-0", "db-1")}
    assert sorted(nodes.values()) == ["node-1", "node-2"]
    for name in nodes:
        cluster.kubectl("exec", name, "--", "sh", "-c", f"echo {name} >/data/name")
        row = cluster.kubectl("get", "pvc", f"data-{name}", "--no-headers").split()
        assert (row[1], row[3], row[4], row[5]) == ("Bound", "1Gi", "RWO", "local-path")

    uid = field(cluster, "pod", "db-1", ".metadata.uid")
    cluster.kubectl("delete", "pod", "db-1")
    eventually(lambda: field(cluster, "pod", "db-1", ".metadata.uid") != uid, SECONDS)
    ready(cluster, "db-1")
    assert cluster.kubectl("exec", "db-1", "--", "cat", "/data/name") == "db-1\n"
    assert field(cluster, "pod", "db-1", ".spec.nodeName") == nodes["db-1"]

    restart(cluster)
    cluster.kubectl("rollout", "restart", "statefulset/db")
    cluster.kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
    for name, node in nodes.items():
        assert cluster.kubectl("exec", name, "--", "cat", "/data/name") == f"{name}\n"
        assert field(cluster, "pod", name, ".spec.nodeName") == node

    directories = [directory(cluster, f"data-{name}") for name in nodes]
    assert [path.parent.stat().st_mode & 0o777 for path in directories] == [0o700, 0o700]
    cluster.kubectl("delete", "statefulset", "db")
    cluster.kubectl("delete", "pvc", "data-db-0", "data-db-1", "--timeout=60s")
    eventually(lambda: not any(path.exists() for path in directories), SECONDS)
    cluster.kubectl("wait", "--for=delete", "pv", "--all", "--timeout=60s")


def test_a_claim_waits_for_its_first_pod_grows_and_is_deleted_after_it(cluster: Cluster):
    apply(cluster, claim("later"))
    reason = "reason=WaitForFirstConsumer,involvedObject.name=later"
    eventually(lambda: "waiting for first consumer" in cluster.kubectl("get", "events", "--field-selector", reason))
    assert field(cluster, "pvc", "later", ".status.phase") == "Pending"
    apply(cluster, pod("chosen", "later", nodeSelector={"kubernetes.io/hostname": "node-2"}))
    ready(cluster, "chosen")
    cluster.kubectl("exec", "chosen", "--", "sh", "-c", "echo hello >/later/file")
    assert (directory(cluster, "later") / "file").read_text() == "hello\n"

    apply(cluster, pod("elsewhere", "later", nodeSelector={"kubernetes.io/hostname": "node-1"}))
    eventually(
        lambda: (
            "didn't match PersistentVolume's node affinity"
            in field(cluster, "pod", "elsewhere", ".status.conditions[0].message")
        )
    )
    cluster.kubectl("delete", "pod", "elsewhere")

    cluster.kubectl("patch", "pvc", "later", "-p", '{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}')
    eventually(lambda: field(cluster, "pvc", "later", ".status.capacity.storage") == "3Gi")

    path = directory(cluster, "later")  # a claim in use is deleted after its pod
    cluster.kubectl("delete", "pvc", "later", "--wait=false")
    assert cluster.kubectl("get", "pvc", "later", "--no-headers").split()[1] == "Terminating"
    assert cluster.kubectl("exec", "chosen", "--", "cat", "/later/file") == "hello\n"
    cluster.kubectl("delete", "pod", "chosen")
    cluster.kubectl("wait", "--for=delete", "pvc/later", "--timeout=60s")
    eventually(lambda: not path.exists(), SECONDS)


def test_a_retained_volume_keeps_its_data_and_is_bound_again_by_its_administrator(cluster: Cluster):
    apply(cluster, claim("kept"), pod("first", "kept"))
    ready(cluster, "first")
    cluster.kubectl("exec", "first", "--", "sh", "-c", "echo precious >/kept/file")
    volume, path = field(cluster, "pvc", "kept", ".spec.volumeName"), directory(cluster, "kept")
    cluster.kubectl("patch", "pv", volume, "-p", '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}')
    cluster.kubectl("delete", "pod/first", "pvc/kept", "--timeout=60s")
    eventually(lambda: field(cluster, "pv", volume, ".status.phase") == "Released")
    cluster.kubectl("patch", "pv", volume, "--type=json", "-p", '[{"op":"remove","path":"/spec/claimRef"}]')
    eventually(lambda: field(cluster, "pv", volume, ".status.phase") == "Available")
    apply(cluster, claim("again", volumeName=volume), pod("second", "again"))
    ready(cluster, "second")
    assert cluster.kubectl("exec", "second", "--", "cat", "/again/file") == "precious\n"
    cluster.kubectl("delete", "pod/second", "pvc/again", "--timeout=60s")
    cluster.kubectl("delete", "pv", volume, "--timeout=60s")
    assert (path / "file").read_text() == "precious\n"


def test_an_ephemeral_volume_lives_as_long_as_its_pod(cluster: Cluster):
    template = {"spec": claim("x")["spec"]}
    apply(cluster, pod("job", volumes=[{"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}]))
    ready(cluster, "job")
    path = directory(cluster, "job-tmp")
    cluster.kubectl("exec", "job", "--", "touch", "/tmp/file")
    assert [entry.name for entry in path.iterdir()] == ["file"]
    cluster.kubectl("delete", "pod", "job")
    cluster.kubectl("wait", "--for=delete", "pvc/job-tmp", "--timeout=60s")
    eventually(lambda: not path.exists(), SECONDS)


def test_a_claim_that_no_directory_can_satisfy_says_why(cluster: Cluster):
    apply(cluster, claim("shared", accessModes=["ReadWriteMany"]), pod("reader", "shared"))
    events = "involvedObject.name=shared,reason=ProvisioningFailed"
    eventually(
        lambda: (
            "access mode ReadWriteMany is not supported" in cluster.kubectl("get", "events", "--field-selector", events)
        )
    )
    assert field(cluster, "pod", "reader", ".status.phase") == "Pending"
    cluster.kubectl("delete", "pod/reader", "pvc/shared", "--timeout=60s")
