"""The scheduler of `podwire up`, driven by kubectl: preemption, and a second profile beside it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import PODWIRE, Cluster

IMAGE = "podwire.local/busybox:latest"
SLEEP = ["sh", "-c", "trap 'sleep 2; exit 0' TERM; sleep infinity & wait"]


OWN_CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: reckless
  plugins:
    filter:
      disabled:
      - name: "*"
"""
"""The configuration of the cluster's own scheduler."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    config = made.prefix / "own-scheduler.yaml"
    config.write_text(OWN_CONFIGURATION)
    made.podwire("up --detach", "--scheduler-config", config)
    eventually(lambda: "default" in made.kubectl("get", "serviceaccounts", "-o", "name"), 60)
    yield made
    made.close()


def pod(name: str, cpu: str, **spec: Any) -> str:
    container = {"name": "main", "image": IMAGE, "command": SLEEP, "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "labels": {"app": name}}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}
    )


def message(cluster: Cluster, name: str) -> str:
    path = '{.status.conditions[?(@.type=="PodScheduled")].message}'
    return cluster.kubectl("get", "pod", name, "-o", f"jsonpath={path}")


def test_a_pod_of_higher_priority_takes_the_place_of_the_least_important(cluster: Cluster):
    allocatable = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}")
    part = f"{int(allocatable) * 1000 // 3}m"
    node = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
    for name, value in (("small", 10), ("large", 1000)):
        cluster.kubectl("create", "priorityclass", name, f"--value={value}")
    cluster.kubectl("apply", "-f", "-", stdin=pod("kept", part, priorityClassName="small"))
    cluster.kubectl("apply", "-f", "-", stdin=pod("protected", part))
    cluster.kubectl("apply", "-f", "-", stdin=pod("victim", part))
    cluster.kubectl("create", "poddisruptionbudget", "protected", "--selector=app=protected", "--min-available=1")
    cluster.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")

    cluster.kubectl("apply", "-f", "-", stdin=pod("better", part, priorityClassName="small"))
    eventually(
        lambda: node in cluster.kubectl("get", "pod", "better", "-o", "jsonpath={.status.nominatedNodeName}"), 30
    )
    wide = cluster.kubectl("get", "pod", "better", "-o", "wide", "--no-headers")
    assert node in wide  # the column NOMINATED NODE
    cluster.kubectl("wait", "--for=delete", "pod/victim", "--timeout=60s")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/better", "--timeout=60s")
    events = cluster.kubectl("get", "events", "--field-selector", "involvedObject.name=victim,reason=Preempted",
                             "-o", "jsonpath={.items[*].message}")  # fmt: skip
    uid = cluster.kubectl("get", "pod", "better", "-o", "jsonpath={.metadata.uid}")
    assert events == f"Preempted by pod {uid} on node {node}"

    cluster.kubectl("apply", "-f", "-", stdin=pod("waits", part))
    eventually(lambda: message(cluster, "waits"), 30)
    assert message(cluster, "waits") == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )

    cluster.kubectl("apply", "-f", "-", stdin=pod("first", part, priorityClassName="large"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/first", "--timeout=60s")
    names = cluster.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").split()
    assert "protected" in names  # its budget makes even more important pods go before it
    assert ("kept" in names, "better" in names) == (True, False)  # the older one of two equals stays


def test_the_scheduler_of_the_cluster_has_the_profiles_of_its_file(cluster: Cluster):
    cluster.kubectl("apply", "-f", "-", stdin=pod("picky", "10m", nodeSelector={"no": "node"}))
    cluster.kubectl("apply", "-f", "-", stdin=pod("any", "10m", nodeSelector={"no": "node"}, schedulerName="reckless"))
    eventually(lambda: "reckless  Successfully assigned default/any" in cluster.kubectl("describe", "pod", "any"), 30)
    eventually(lambda: "didn't match Pod's node affinity/selector" in message(cluster, "picky"), 30)
    cluster.kubectl("delete", "pod", "picky", "any", "--grace-period=0", "--force")


def test_a_wrong_configuration_of_the_scheduler_is_refused_before_anything_starts(cluster: Cluster, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("apiVersion: v1\nkind: Pod\n")
    for file, why in ((wrong, "apiVersion: 'v1' must be"), (tmp_path / "absent", "No such file or directory")):
        refused = cluster.run(PODWIRE, "up", "--prefix", tmp_path / "other", "--scheduler-config", file)
        assert refused.returncode == 1
        assert f"--scheduler-config: {file}: " in refused.stderr
        assert why in refused.stderr
        assert not (tmp_path / "other").exists()


CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
profiles:
- schedulerName: careless
  plugins:
    filter:
      disabled:
      - name: NodeUnschedulable
      - name: TaintToleration
"""


def test_a_second_scheduler_has_a_profile_of_its_own(cluster: Cluster):
    config, log = cluster.prefix / "scheduler.yaml", cluster.prefix / "scheduler.log"
    kubeconfig = cluster.prefix / "var/lib/podwire/kubeconfig"
    config.write_text(CONFIGURATION)
    command = f"{PODWIRE} scheduler --kubeconfig {kubeconfig} --config {config} > {log} 2>&1 & echo $!"
    pid = cluster.output("sh", "-c", command).strip()
    try:
        cluster.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
        node = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
        cluster.kubectl("cordon", node)
        cluster.kubectl("apply", "-f", "-", stdin=pod("careful", "10m"))
        cluster.kubectl("apply", "-f", "-", stdin=pod("runs", "10m", schedulerName="careless"))
        cluster.kubectl("wait", "--for=condition=Ready", "pod/runs", "--timeout=60s")
        assert message(cluster, "careful") == (
            "0/1 nodes are available: 1 node(s) were unschedulable. "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        assert "careless  Successfully assigned default/runs" in cluster.kubectl("describe", "pod", "runs")
        assert "parallelism has no effect in this scheduler" in log.read_text()
    finally:
        cluster.run("kill", pid)
        cluster.kubectl("uncordon", node)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/careful", "--timeout=60s")
