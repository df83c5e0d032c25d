"""`podwire up --runtime unix:///…`: our kubelet and our CNI plugins on Debian's containerd, as docs/containerd.md says.

The host is a network and a mount namespace in which what they may write to is in memory.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwire.runtime.images import build
from tests.eventually import eventually

PODWIRE = Path(sys.executable).with_name("podwire")
DEBIAN = Path(sys.prefix) / "debian/usr/bin"
GUIDE = Path(__file__).parents[2] / "docs/containerd.md"
SOCKET = "/run/containerd/containerd.sock"
KUBECONFIG = "/var/lib/podwire/kubeconfig"
SECONDS = 90.0
FURNISH = """\
set -e
ip link set lo up
for each in /run /var/lib /var/log /opt; do mount -t tmpfs host $each; done
mount -t tmpfs upper /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work etc /etc
mkdir -p /etc/containerd
echo ready
exec sleep infinity
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "sleeper"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "c",
                "image": build.ROOT_REFERENCE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "100000"],
            }
        ],
    },
}


def program(name: str) -> str | None:
    """The machine's own, or the one that set-up unpacked."""
    return shutil.which(name) or (str(DEBIAN / name) if (DEBIAN / name).exists() else None)


pytestmark = pytest.mark.skipif(
    not all(map(program, ("containerd", "ctr", "containerd-shim-runc-v2", "runc"))), reason="needs containerd and runc"
)


class Host:
    def __init__(self, folder: Path) -> None:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-nm", "sh", "-c", FURNISH]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"ready\n"
        self._log = folder / "containerd.log"
        self._containerd: subprocess.Popen[bytes] | None = None

    def words(self, *words: object) -> list[str]:
        return list(map(str, ["nsenter", "-t", self._child.pid, "-n", "-m", "--", *words]))

    def run(self, *words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def output(self, *words: object, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        log = self._log.read_text()[-3000:] if self._log.exists() else ""
        log += self.run("tail", "-n", "60", "/var/log/podwire/kubelet.log").stdout if done.returncode else ""
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}\n{log}"
        return done.stdout

    def kubectl(self, *words: object, stdin: str = "") -> str:
        return self.output("kubectl", "--kubeconfig", KUBECONFIG, *words, stdin=stdin)

    def start_containerd(self, config: str) -> None:
        self.output("tee", "/etc/containerd/config.toml", stdin=config)
        shims = str(Path(program("containerd-shim-runc-v2") or "").parent)
        environment = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}"}
        with self._log.open("wb") as log:
            words = ["setpriv", "--pdeathsig", "KILL", *self.words(program("containerd"))]
            self._containerd = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        eventually(
            lambda: self.run(program("ctr"), "version").returncode == 0,
            SECONDS,
            interval=0.1,
            explain=lambda: self._log.read_text()[-3000:],
        )

    def close(self) -> None:
        self.run(PODWIRE, "down", "--force")
        here = Path(f"/proc/{self._child.pid}/ns/mnt").readlink()
        if self._containerd is not None:
            self._containerd.kill()
            self._containerd.wait()
        for path in Path("/proc").glob("[0-9]*"):  # containerd's shims outlive it
            with contextlib.suppress(OSError):
                if (path / "ns/mnt").readlink() == here and int(path.name) != self._child.pid:
                    os.kill(int(path.name), signal.SIGKILL)
        self._child.kill()
        self._child.communicate()
        for path in Path("/sys/fs/cgroup").glob("*/k8s.io"):  # containerd's own, which it keeps
            with contextlib.suppress(OSError):
                path.rmdir()


@pytest.fixture
def host(own_machine: None, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def config_of_the_guide() -> str:
    found = re.search(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_pods_run_on_containerd_configured_by_the_guide(host: Host, tmp_path: Path):
    host.start_containerd(config_of_the_guide())
    build.archive_root(tmp_path / "busybox.tar")
    build.archive_root(tmp_path / "pause.tar", "podwire.local/pause:latest", command=["sleep", "1000000000"])
    for name in ("busybox", "pause"):
        host.output(program("ctr"), "-n", "k8s.io", "images", "import", tmp_path / f"{name}.tar")
    said = host.output(PODWIRE, "up", "--detach", "--runtime", f"unix://{SOCKET}")
    assert "on the host itself" in said
    assert SOCKET in said
    account = ("kubectl", "--kubeconfig", KUBECONFIG, "get", "serviceaccount", "default")
    eventually(lambda: host.run(*account).returncode == 0, SECONDS)
    host.kubectl("apply", "-f", "-", stdin=json.dumps(POD))
    host.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "--timeout=60s")
    assert host.kubectl("get", "pod", "sleeper", "-o", "jsonpath={.status.podIP}").startswith("10.244.0.")
    assert "containerd://" in host.kubectl("get", "pod", "sleeper", "-o", "jsonpath={.status.containerStatuses[0]}")
    assert "guard-all" in host.output("nft", "list", "map", "bridge", "podwire", "guards")
    records = json.loads(host.output(PODWIRE, "trace", "sleeper", "--format", "json"))
    arrows = {(record["from"], record["to"], record["method"]) for record in records}
    wanted = {("Kubelet", "ContainerRuntime", name) for name in ("RunPodSandbox", "CreateContainer", "StartContainer")}
    assert wanted <= arrows, "a foreign runtime is seen from our side of its socket"
    host.output(PODWIRE, "down")
    assert host.output("nft", "list", "tables") == ""
    assert host.output(program("ctr"), "-n", "k8s.io", "containers", "list", "-q") == ""
    assert host.output(PODWIRE, "leakcheck").strip() == "no leftovers"


def test_a_runtime_that_does_not_answer_is_named(host: Host):
    refused = host.run(PODWIRE, "up", "--detach", "--runtime", f"unix://{SOCKET}")
    assert refused.returncode == 1
    assert f"unix://{SOCKET}: no runtime listens there; start it first" in refused.stderr
    assert host.run(PODWIRE, "up", "--runtime", f"unix://{SOCKET}", "--prefix", "/run/x").returncode == 1
