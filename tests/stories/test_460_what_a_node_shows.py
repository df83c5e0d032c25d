"""Pods that share a node's processes and files see their node: not the host, the control plane or other nodes."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.machine_support import Cluster, Machine
from tests.stories.pids import host_pid


def spy(node: str, **spec: Any) -> dict[str, Any]:
    """A privileged pod with the node's processes, and its root directory below /host."""
    container = {
        "name": "c",
        "image": "podwire.local/busybox:latest",
        "command": ["sleep", "100000"],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "root", "mountPath": "/host", "mountPropagation": "HostToContainer"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"spy-{node}"},
        "spec": {
            "nodeName": node,
            "hostPID": True,
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
            "containers": [container],
            **spec,
        },
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    machine = Machine()
    made = Cluster(machine)
    try:
        made.up("--nodes", "2")
        made.until_account()
        for node in ("node-1", "node-2"):
            made.kubectl("apply", "-f", "-", stdin=json.dumps(spy(node)))
        made.kubectl("wait", "--for=condition=Ready", "pod/spy-node-1", "pod/spy-node-2", "--timeout=60s")
        yield made
    finally:
        made.close()
        machine.close()


def run(cluster: Cluster, node: str, script: str) -> str:
    return cluster.kubectl("exec", f"spy-{node}", "--", "sh", "-c", script)


@pytest.mark.parametrize("node", ["node-1", "node-2"])
def test_a_pod_with_the_nodes_processes_sees_those_of_its_node_only(cluster: Cluster, node: str):
    names = run(cluster, node, "cat /proc/[0-9]*/comm").split()
    suffix = "" if node == "node-1" else "@node-2"
    assert {f"pw-{name}{suffix}"[:15] for name in ("cni", "runtime", "kubelet")} <= set(names)
    others = "@node-2" if node == "node-1" else "pw-kubelet"
    foreign = [name for name in names if name in ("pw-apiserver", "pw-scheduler", "pw-trace", "podwire-up", others)]
    assert foreign == []
    count = len(run(cluster, node, "ls -d /proc/[0-9]*").split())
    assert count < 30, "the machine has many more"
    assert run(cluster, node, "cat /proc/1/comm") == "sleep\n", "the init of the node"


@pytest.mark.parametrize("node", ["node-1", "node-2"])
@pytest.mark.parametrize("through", ["/host", "/proc/1/root", "/host/proc/1/root"])
def test_a_pod_with_the_nodes_root_finds_no_secret_of_others(cluster: Cluster, node: str, through: str):
    prefix, other = cluster.prefix, "node-2" if node == "node-1" else "node-1"
    for path in (
        f"{prefix}/var/lib/podwire/apiserver",
        f"{prefix}/var/lib/podwire/kubeconfig",
        f"{prefix}/var/lib/podwire/up.json",
        f"{prefix}/var/lib/podwire/nodes/{other}",
        f"{prefix}/var/lib/kubelet",
        f"{prefix}/run/podwire/cri.sock",
        "/var/lib/podwire/apiserver",
        "/var/lib/podwire/kubeconfig",
        "/var/lib/podwire/nodes",
        "/var/lib/podwire/up.json",
        "/run/podwire/components/supervisor",
        "/run/podwire/cluster",
    ):
        assert run(cluster, node, f"test -e {through}{path} && echo it is there || true") == "", path
    own = run(cluster, node, f"ls {through}/var/lib/podwire/identities").split()
    assert "kubelet.kubeconfig" in own
    assert "scheduler.kubeconfig" not in own
    assert (prefix / "var/lib/podwire/apiserver/pki").is_dir(), "the host has it"


def test_a_log_that_is_a_link_is_not_written_to(cluster: Cluster, tmp_path: Path):
    """A component that starts anew opens its log as the host's root; a pod might once have written there."""
    log, victim = cluster.prefix / "var/log/podwire/scheduler.log", tmp_path / "victim"
    victim.write_text("mine")
    log.unlink()
    log.symlink_to(victim)
    pid = next(entry["pid"] for entry in cluster.status()["components"] if entry["name"] == "scheduler")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: any(c["name"] == "scheduler" and c["restarts"] > 1 for c in cluster.status()["components"]))
    assert victim.read_text() == "mine"
    log.unlink()
    ready = {"name": "scheduler", "state": "ready"}
    eventually(lambda: any(ready.items() <= entry.items() for entry in cluster.status()["components"]))


def test_orphans_of_a_node_are_reaped(cluster: Cluster):
    script = "sh -c '(sleep 0.1; exit 3) & exit 0'; sleep 1; grep -l '^State:.*zombie' /proc/[0-9]*/status || true"
    assert cluster.podwire("node exec", "node-1", "--", "sh", "-c", script).stdout == ""


def test_signals_and_exit_codes_pass_through_node_exec(cluster: Cluster):
    def executed(script: str) -> int:
        return cluster.podwire("node exec", "node-2", "--", "sh", "-c", script).returncode

    assert executed("exit 7") == 7
    assert executed("kill -TERM $$") == -signal.SIGTERM
    assert executed('test "$(readlink /proc/self)" -gt 1') == 0


def test_a_node_whose_init_was_killed_is_built_again_by_the_next_up(cluster: Cluster):
    """Everything on the node ends with it, as at a power failure; the other node goes on."""

    def kubelet() -> dict[str, Any]:
        return next(entry for entry in cluster.status()["components"] if entry["name"] == "kubelet@node-2")

    os.kill(host_pid(kubelet()["pid"], 1), signal.SIGKILL)
    eventually(lambda: kubelet()["state"] == "down")
    cluster.kill_all()
    cluster.up()
    cluster.kubectl("wait", "--for=condition=Ready", "node/node-1", "node/node-2", "--timeout=60s")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/spy-node-1", "--timeout=60s")
    cluster.down()
    assert cluster.left() == []
