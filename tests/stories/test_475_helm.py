"""Helm on `podwire up --nodes 2`: a chart with DaemonSet, RBAC, ConfigMap and hooks, from install to uninstall."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import Cluster

CHART = Path(__file__).parent / "charts/agent"
HELM = Path(sys.executable).with_name("helm")
RELEASE = "agent"
ACCOUNT = f"system:serviceaccount:default:{RELEASE}"


class Release:
    """The release of the chart in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._settings = [
            f"HELM_{name}_HOME={cluster.prefix / 'helm'}" for name in ("CACHE", "CONFIG", "DATA")
        ] + [f"KUBECONFIG={cluster.prefix / 'var/lib/podwire/kubeconfig'}"]  # fmt: skip

    def helm(self, *words: object, fails: bool = False) -> str:
        done = self.cluster.run("env", *self._settings, HELM, *words)
        assert (done.returncode != 0) is fails, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def pods(self) -> list[dict[str, Any]]:
        selector = f"app.kubernetes.io/instance={RELEASE}"
        pods = json.loads(self.cluster.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def output(self) -> dict[str, str]:
        """The first line of each node's pod."""
        return {
            pod["spec"]["nodeName"]: self.cluster.kubectl("logs", pod["metadata"]["name"]).splitlines()[0]
            for pod in self.pods()
        }

    def status(self) -> str:
        return json.loads(self.helm("status", RELEASE, "-o", "json"))["info"]["status"]


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    cluster = Cluster()
    try:
        cluster.podwire("up --detach --nodes 2")
        eventually(lambda: "default" in cluster.kubectl("get", "serviceaccounts", "-o", "name"), 60)
        yield Release(cluster)
    finally:
        cluster.close()


def test_1_install_returns_when_the_agent_is_ready_on_every_node(release: Release):
    output = release.helm("install", RELEASE, CHART, "--wait", "--timeout=60s")
    assert "STATUS: deployed" in output
    assert "agent says hello on every node." in output
    assert release.output() == {"node-1": "hello from node-1", "node-2": "hello from node-2"}
    assert "agent-check" not in release.cluster.kubectl("get", "jobs", "-o", "name")
    assert release.cluster.kubectl("auth", "can-i", "list", "nodes", f"--as={ACCOUNT}") == "yes\n"
    assert [entry["chart"] for entry in json.loads(release.helm("list", "-o", "json"))] == ["agent-1.0.0"]


def test_2_its_test_passes(release: Release):
    assert "Phase:          Succeeded" in release.helm("test", RELEASE, "--timeout=60s")


def test_3_an_upgrade_replaces_every_pod_one_after_the_other(release: Release):
    release.helm("upgrade", RELEASE, CHART, "--set", "greeting=welcome", "--wait", "--timeout=60s")
    eventually(lambda: release.output() == {node: f"welcome from {node}" for node in ("node-1", "node-2")}, 30)
    assert "hello" in release.helm("get", "values", RELEASE, "--revision=1", "--all")


def test_4_an_upgrade_that_does_not_get_ready_is_rolled_back(release: Release):
    words = ["upgrade", RELEASE, CHART, "--set", "badImage=true", "--atomic", "--timeout=8s"]
    error = release.helm(*words, fails=True)
    assert "has been rolled back due to atomic being set" in error
    eventually(lambda: len(release.pods()) == 2, 30)
    release.cluster.kubectl("rollout", "status", f"daemonset/{RELEASE}", "--timeout=60s")
    assert release.status() == "deployed"


def test_5_a_rollback_brings_the_first_settings_back(release: Release):
    release.helm("rollback", RELEASE, "1", "--wait", "--timeout=60s")
    eventually(lambda: set(release.output().values()) == {"hello from node-1", "hello from node-2"}, 30)


def test_6_an_object_that_the_api_refuses_is_named_and_nothing_is_installed(release: Release):
    error = release.helm("install", "Wrong", CHART, fails=True)
    assert "release name" in error
    error = release.helm(
        "install", "other", CHART, "--set", "image=UPPER/Case@bad@", "--wait", "--timeout=8s", fails=True
    )
    assert "pre-install" in error
    release.helm("uninstall", "other", "--wait")


def test_7_uninstall_removes_all_that_the_chart_made(release: Release):
    release.helm("uninstall", RELEASE, "--wait", "--timeout=60s")
    kinds = "daemonsets,pods,configmaps,serviceaccounts,clusterroles,clusterrolebindings,jobs,controllerrevisions"
    selector = f"app.kubernetes.io/instance={RELEASE}"
    eventually(lambda: release.cluster.kubectl("get", kinds, "-l", selector, "-o", "name") == "", 30)
    assert release.helm("list", "--all", "-q") == ""
    assert release.cluster.kubectl("get", "secrets", "-o", "name") == ""
