"""`podwire up --nodes 3`: pods of all nodes reach each other as what they are, and every node is one of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podwire.cluster.runtime import Options
from tests.eventually import eventually

PODWIRE = Path(sys.executable).with_name("podwire")
SECONDS = 90.0
NAMES = ("one", "two", "three")
NODES = ("node-1", "node-2", "node-3")
SERVE = "echo serving; mkdir /www; echo $HOSTNAME >/www/index.html; exec httpd -f -v -p 80 -h /www"
IDENTITY = "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    container = {
        "name": "c",
        "image": "podwire.local/busybox:latest",
        "command": ["sh", "-c", SERVE],
        "ports": [{"containerPort": 80, "hostPort": 8080}],
        "securityContext": {"capabilities": {"add": ["NET_RAW"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            "containers": [container],
            **spec,
        },
    }


class Cluster:
    """`podwire up` below a prefix, on a machine made of namespaces."""

    def __init__(self) -> None:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-nm", "sh", "-c"]
        words += ["ip link set lo up && echo ready && exec sleep infinity"]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"ready\n"
        self.prefix = Path(tempfile.mkdtemp(prefix="pwup-", dir="/tmp"))
        (self.prefix / ".owner").write_text(str(os.getpid()))

    def run(self, *words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        entered = ["nsenter", "-t", self._child.pid, "-n", "-m", "--", *words]
        return subprocess.run(
            list(map(str, entered)), input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def output(self, *words: object, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def podwire(self, command: str, *words: object) -> str:
        return self.output(PODWIRE, *command.split(), "--prefix", self.prefix, *words)

    def kubectl(self, *words: object, stdin: str = "") -> str:
        return self.output("kubectl", "--kubeconfig", self.prefix / "var/lib/podwire/kubeconfig", *words, stdin=stdin)

    def run_pods(self, *pods: dict[str, Any]) -> None:
        eventually(lambda: "default" in self.kubectl("get", "serviceaccounts", "-o", "name"), SECONDS)
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
        names = [f"pod/{pod['metadata']['name']}" for pod in pods]
        self.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *names)

    def pods(self) -> dict[str, Any]:
        return {
            item["metadata"]["name"]: item for item in json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        }

    def components(self) -> dict[str, Any]:
        return {component["name"]: component for component in json.loads(self.podwire("status -o json"))["components"]}

    def left(self) -> list[str]:
        """Leftovers after everything was removed, searched without podwire."""
        files = [str(path) for path in self.prefix.rglob("*") if path.name != ".owner"]
        parent = Options(socket=self.prefix, prefix=self.prefix).cgroup_parent
        groups = [str(path) for deep in ("", "*/") for path in Path("/sys/fs/cgroup").glob(f"{deep}{parent}*")]
        links = {item["ifname"] for item in json.loads(self.output("ip", "-j", "link"))} - {"lo"}
        mounts = Path(f"/proc/{self._child.pid}/mountinfo").read_text().splitlines()
        return [*files, *groups, *links, *(mount for mount in mounts if str(self.prefix) in mount)]

    def close(self) -> None:
        self.run(PODWIRE, "down", "--force", "--prefix", self.prefix)
        self._child.kill()
        self._child.communicate()
        shutil.rmtree(self.prefix, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


def ips(pod: dict[str, Any]) -> list[str]:
    return [address["ip"] for address in pod["status"]["podIPs"]]


def test_pods_of_three_nodes_reach_each_other_with_their_own_addresses(cluster: Cluster):
    cluster.podwire("up --detach --nodes 3")
    cluster.run_pods(*map(pod, NAMES))
    pods = cluster.pods()
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == set(NODES)
    everybody = [ip for pod in pods.values() for ip in ips(pod)]
    assert len(everybody) == 6, "of both families"
    pings = " && ".join(f"ping -c 1 -W 20 {item}" for item in everybody)
    for name in NAMES:
        cluster.kubectl("exec", name, "--", "sh", "-c", pings)
    caller, called = pods["one"], pods["two"]
    for ip in ips(called):
        url = f"http://[{ip}]/" if ":" in ip else f"http://{ip}/"
        assert cluster.kubectl("exec", "one", "--", "wget", "-qO-", url) == "two\n"
    log = cluster.kubectl("logs", "two")
    assert log.startswith("serving\n")
    assert all(ip in log for ip in ips(caller)), "its own addresses, not its node's"

    address = f"http://{called['status']['hostIP']}:8080/"
    from_node = cluster.podwire("node exec", caller["spec"]["nodeName"], "--", "curl", "-s", "-m", "20", address)
    assert from_node == "two\n"
    assert cluster.kubectl("exec", "three", "--", "wget", "-qO-", address) == "two\n"
    for name in NAMES:
        output = cluster.output(PODWIRE, "trace", name, "--check", "pod", "--prefix", cluster.prefix)
        assert "no deviations" in output
    traced = json.loads(cluster.podwire("trace", "two", "-o", "json"))
    assert {item["node"] for item in traced if item["from"] == "Kubelet" and item["to"] == "ContainerRuntime"} == {
        called["spec"]["nodeName"]
    }
    cluster.kubectl("delete", "pod", *NAMES)
    assert cluster.podwire("leakcheck") == "no leftovers\n"
    cluster.podwire("down")
    assert cluster.left() == []


def test_a_node_that_loses_its_runtime_is_not_ready_and_the_others_are(cluster: Cluster):
    cluster.podwire("up --detach --nodes 2")
    cluster.run_pods(pod("one"), pod("two"))
    before, supervisor = cluster.components(), cluster.components()["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGSTOP)  # else it starts the next one before anybody has seen anything
    try:
        os.kill(before["runtime@node-2"]["pid"], signal.SIGKILL)
        cluster.kubectl("wait", "--for=condition=Ready=false", "node/node-2", "--timeout=60s")
        cluster.kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=60s")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    cluster.kubectl("wait", "--for=condition=Ready", "node/node-2", "--timeout=60s")
    os.kill(before["kubelet@node-2"]["pid"], signal.SIGKILL)

    def restarted():
        kubelet = cluster.components()["kubelet@node-2"]
        return kubelet["restarts"] > 0 and kubelet["state"] == "ready"

    eventually(restarted, SECONDS, explain=cluster.components)
    now = cluster.components()
    assert now["kubelet"]["pid"] == before["kubelet"]["pid"]
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in cluster.pods().values()} == {0}

    os.kill(supervisor, signal.SIGKILL)
    cluster.podwire("down")
    assert cluster.left() == []
    assert cluster.podwire("leakcheck") == "no leftovers\n"


def test_a_cluster_grows_while_its_pods_go_on_and_does_not_shrink(cluster: Cluster):
    cluster.podwire("up --detach")
    cluster.run_pods(pod("one"))
    before = cluster.kubectl("get", "pod", "one", "-o", IDENTITY)
    cluster.podwire("up --detach --nodes 2")
    assert cluster.kubectl("get", "pod", "one", "-o", IDENTITY) == before
    cluster.run_pods(pod("two"))
    pods = cluster.pods()
    assert pods["two"]["spec"]["nodeName"] == "node-2"
    cluster.kubectl("exec", "one", "--", "wget", "-qO-", f"http://{pods['two']['status']['podIP']}/")
    assert pods["one"]["status"]["podIP"] in cluster.kubectl("logs", "two"), "also who was there before"
    refused = cluster.run(PODWIRE, "up", "--nodes", "1", "--prefix", cluster.prefix)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "this cluster has 2 nodes, and nodes are never removed" in refused.stderr
    assert json.loads(cluster.podwire("status -o json"))["state"] == "up"
    cluster.podwire("down")
    assert cluster.left() == []
