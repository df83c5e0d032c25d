"""Programs started one by one, in any order, or twice: they find each other, or say who is there already."""

import itertools
import json
import os
import random
import subprocess
import time

import pytest

from podwire.runtime.images import Images, build

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run, another one every hour; set it to repeat a run."""

ORDERS = list(itertools.permutations(("apiserver", "scheduler", "runtime", "kubelet")))
SAMPLE = ORDERS if SOAK else [random.Random(SEED).choice(ORDERS)]
PAUSE_SECONDS = 0.5

NETWORK = {
    "cniVersion": "1.0.0",
    "name": "podwire",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "story0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.78.0.0/24"}]]},
        }
    ],
}

pytestmark = pytest.mark.timeout(400)


class Parts:
    """The programs of a cluster by hand, without `up`."""

    def __init__(self, cluster):
        self.cluster, self.prefix = cluster, cluster.prefix
        self.children = {}
        cluster.layout.logs.mkdir(parents=True)
        cluster.layout.kubeconfig.parent.mkdir(parents=True)
        images = Images(cluster.layout.state / "images")
        build.build_root(images)
        images.close()
        directory = self.prefix / "etc/cni/net.d"
        directory.mkdir(parents=True)
        network = json.loads(json.dumps(NETWORK))
        network["plugins"][0]["ipam"]["dataDir"] = str(cluster.layout.state / "cni/networks")
        (directory / "10-story.conflist").write_text(json.dumps(network))

    def words(self, name):
        kubeconfig, below = self.cluster.layout.kubeconfig, self.prefix / "var/lib"
        return {
            "apiserver": ["--data-dir", below / "apiserver", "--listen", "127.0.0.1:6443"],
            "scheduler": ["--kubeconfig", kubeconfig],
            "runtime": ["--prefix", self.prefix, "--cni-bin-dir", "/usr/lib/cni"],
            "kubelet": ["--kubeconfig", kubeconfig, "--root-dir", below / "kubelet", "--node-name", "node-1",
                        "--pod-logs-dir", self.prefix / "var/log/pods", "--runtime",
                        f"unix://{self.cluster.layout.runtime_socket}"],
        }[name]  # fmt: skip

    def start(self, name):
        words = list(self.words(name))
        words += ["--write-kubeconfig", self.cluster.layout.kubeconfig] if name == "apiserver" else []
        with self.cluster.layout.log(name).open("ab") as log:
            command = self.cluster.space.command(self.cluster.program, name, *words)
            self.children[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self):
        for child in self.children.values():
            child.kill()
            child.wait()
        self.children.clear()


@pytest.fixture
def parts(cluster):
    found = Parts(cluster)
    try:
        yield found
    finally:
        found.kill()


@pytest.mark.parametrize("order", SAMPLE, ids="-".join)
def test_components_start_in_any_order_and_replace_stale_sockets(cluster, a_pod, parts, order):
    parts.start("apiserver")
    cluster.eventually(lambda: cluster.get("namespaces", "default"), "the server is there once, for its kubeconfig")
    parts.kill()
    for component in order:
        parts.start(component)
        time.sleep(PAUSE_SECONDS)
    cluster.apply(a_pod("one"))
    cluster.running(1)
    pids = cluster.pids()
    parts.kill()
    for component in reversed(order):
        parts.start(component)
    cluster.apply(a_pod("two"))
    cluster.running(2)
    assert pids.items() <= cluster.pids().items()
    assert all(child.poll() is None for child in parts.children.values())
    cluster.delete_all()
    assert (cluster.leases(), cluster.groups()) == (set(), [])


def test_a_second_up_a_second_kubelet_and_a_second_scheduler_do_no_harm(cluster, a_pod):
    cluster.up()
    assert "already up" in cluster.up()
    cluster.apply(a_pod("one"))
    pids = cluster.once(cluster.running(1))
    identities = "/var/lib/podwire/identities"
    words = [cluster.program, "kubelet", "--kubeconfig", f"{identities}/kubelet.kubeconfig", "--node-name", "node-1"]
    node = ["nsenter", "-t", cluster.pid("kubelet"), "-n", "-m", "-p", "--"]
    refused = subprocess.run([*map(str, [*node, *words])], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "another kubelet uses /var/lib/kubelet" in refused.stderr
    assert "Traceback" not in refused.stderr
    words = [cluster.program, "scheduler", "--kubeconfig", cluster.layout.control_identity("scheduler")]
    second = subprocess.Popen(cluster.space.command(*words), stderr=subprocess.PIPE, text=True)
    try:
        assert any("scheduler is synced" in line for line in second.stderr)  # handlers are installed now
        cluster.apply(*(a_pod(f"pod-{number}") for number in range(6)))
        assert pids.items() <= cluster.once(cluster.running(7)).items()
    finally:
        second.terminate()
        _, output = second.communicate(timeout=60)
    assert second.returncode == 0, output
    assert "Traceback" not in output
    cluster.delete_all()
    cluster.empty()
    cluster.down()
