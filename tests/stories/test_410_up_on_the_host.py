"""`podwire up` with the default prefix: the node has the host's own paths and ports, unless somebody else has them.

The host is a network and a mount namespace in which what `up` may write to is in memory.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PODWIRE = Path(sys.executable).with_name("podwire")
SECONDS = 90.0
KUBECONFIG = "/var/lib/podwire/kubeconfig"
FURNISH = """\
set -e
ip link set lo up
for each in /run /var/lib /var/log /opt; do mount -t tmpfs host $each; done
mount -t tmpfs upper /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work etc /etc
echo ready
exec sleep infinity
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "sleeper"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "podwire.local/busybox:latest", "command": ["sleep", "100000"]}],
    },
}


class Host:
    def __init__(self) -> None:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-nm", "sh", "-c", FURNISH]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"ready\n"
        self.before = self.tree()

    def run(self, *words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        entered = ["nsenter", "-t", self._child.pid, "-n", "-m", "--", *words]
        return subprocess.run(
            list(map(str, entered)), input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def output(self, *words: object, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *words: object, stdin: str = "") -> str:
        return self.output("kubectl", "--kubeconfig", KUBECONFIG, *words, stdin=stdin)

    def run_pod(self) -> str:
        until = time.monotonic() + SECONDS
        while self.run("kubectl", "--kubeconfig", KUBECONFIG, "get", "serviceaccount", "default").returncode:
            assert time.monotonic() < until
            time.sleep(0.05)
        self.kubectl("apply", "-f", "-", stdin=json.dumps(POD))
        self.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "--timeout=60s")
        return self.kubectl("get", "pod", "sleeper", "-o", "jsonpath={.status.podIP}")

    def kill_all(self, *prefix: object) -> None:
        components = json.loads(self.output(PODWIRE, "status", "-o", "json", *prefix))["components"]
        opened = [os.pidfd_open(component["pid"]) for component in components if component["pid"]]
        for item in opened:
            signal.pidfd_send_signal(item, signal.SIGKILL)
        for item in opened:
            poll = select.poll()
            poll.register(item, select.POLLIN)
            assert poll.poll(SECONDS * 1000), "a killed process did not end"
            os.close(item)

    def tree(self) -> list[str]:
        """All files and mounts where `up` may write, and all links."""
        files = self.output("find", "/run", "/var/lib", "/var/log", "/opt", "/etc").splitlines()
        mounts = Path(f"/proc/{self._child.pid}/mountinfo").read_text().splitlines()
        links = [item["ifname"] for item in json.loads(self.output("ip", "-j", "link"))]
        return sorted([*files, *(mount.split()[4] for mount in mounts), *links])

    def close(self) -> None:
        self.run(PODWIRE, "down", "--force")
        self._child.kill()
        self._child.communicate()


@pytest.fixture
def host(own_machine: None) -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


def test_on_a_free_host_the_node_is_the_host_and_down_restores_it(host: Host):
    said = host.output(PODWIRE, "up", "--detach")
    assert "slot 0" in said
    assert "on the host itself" in said
    assert '"https://127.0.0.1:6443"' in host.output("cat", KUBECONFIG)
    assert host.run_pod().startswith("10.244.0.")
    assert "podwire-" in host.output("ls", "/run/netns")
    assert "podwire0" in host.output("ip", "-br", "link")
    assert host.output(PODWIRE, "leakcheck").strip() == "no leftovers"
    address = host.kubectl("get", "pod", "sleeper", "-o", "jsonpath={.status.podIP} {.metadata.uid}")
    host.kill_all()
    host.output(PODWIRE, "up", "--detach")
    assert host.kubectl("get", "pod", "sleeper", "-o", "jsonpath={.status.podIP} {.metadata.uid}") == address
    host.output(PODWIRE, "down")
    assert set(host.tree()) - set(host.before) == set()
    assert host.output("nft", "list", "tables") == ""
    assert host.output(PODWIRE, "leakcheck").strip() == "no leftovers"


def test_another_owner_of_the_host_is_named_and_left_alone(host: Host):
    host.output("sh", "-c", "mkdir -p /etc/cni/net.d && echo '{}' >/etc/cni/net.d/05-theirs.conflist")
    before = host.tree()
    said = host.output(PODWIRE, "up", "--detach")
    assert "in use on the host: the network configuration /etc/cni/net.d/05-theirs.conflist" in said
    assert "in its own namespaces" in said
    assert host.run_pod()
    assert host.output("ls", "/etc/cni/net.d").split() == ["05-theirs.conflist"]
    on_node = host.output(PODWIRE, "node", "exec", "node-1", "--", "ls", "/etc/cni/net.d")
    assert on_node.split() == ["10-podwire.conflist"]
    host.output(PODWIRE, "down")
    assert set(host.tree()) - set(before) == set()


@pytest.fixture
def prefixes(host: Host) -> Iterator[list[Path]]:
    made = [Path(tempfile.mkdtemp(prefix="pwh-", dir="/tmp")) for _ in range(2)]
    yield made
    for item in made:
        host.run(PODWIRE, "down", "--force", "--prefix", item)
        shutil.rmtree(item, ignore_errors=True)


def test_after_a_reboot_a_prefix_has_its_slot_again_though_another_came_up_first(host: Host, prefixes: list[Path]):
    """A reboot ends all processes; namespaces, their links and mounts are gone, and so is what is in /run."""
    one, other = prefixes

    def up(prefix: Path) -> str:
        network = 'ip link set lo up && exec "$@"'
        return host.output("unshare", "-n", "sh", "-c", network, "sh", PODWIRE, "up", "--detach", "--prefix", prefix)

    assert "slot 1" in up(one)
    host.kill_all("--prefix", one)
    host.output("sh", "-c", f"umount -l {one}/run/podwire/nodes && rm -rf {one}/run /run/*")
    assert "slot 2" in up(other)
    assert "slot 1" in up(one)
    for item in prefixes:
        host.output(PODWIRE, "down", "--prefix", item)
    assert set(host.tree()) - set(host.before) == set()
