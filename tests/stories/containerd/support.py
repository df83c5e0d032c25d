"""Debian's containerd under our cluster, on a machine of its own: namespaces in which /run, /var and /etc are its own.

Processes, mounts and links end with the machine's first process, whatever happens here; cgroups are the real machine's,
and are removed by the ids of containerd's containers.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from podwire.runtime.images import build
from tests.eventually import eventually

PODWIRE = Path(sys.executable).with_name("podwire")
DEBIAN = Path(sys.prefix) / "debian/usr"
GUIDE = Path(__file__).parents[3] / "docs/containerd.md"
SOCKET = "/run/containerd/containerd.sock"
KUBECONFIG = "/var/lib/podwire/kubeconfig"
PAUSE = "podwire.local/pause:latest"
IMAGE = build.ROOT_REFERENCE
SECONDS = 60.0
SHIMS = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
FURNISH = """\
set -e
ip link set lo up
for each in /run /var/lib /var/log /opt; do mount -t tmpfs machine $each; done
mkdir -p /run/etc/upper /run/etc/work /run/home
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work etc /etc
mkdir -p /etc/containerd
echo ready
while :; do sleep 1000 & wait $!; done
"""
"""The shell waits for processes that have lost their parent, as the first process of a machine must."""


def program(name: str) -> str:
    """The machine's own, or the one that set-up unpacked."""
    found = shutil.which(name) or str(DEBIAN / "bin" / name)
    assert Path(found).exists(), f"{name} is not here; run scripts/setup"
    return found


def reference_plugins() -> Path:
    places = (Path("/usr/lib/cni"), DEBIAN / "lib/cni")
    return next(path for path in places if all((path / name).exists() for name in ("bridge", "loopback")))


class Machine:
    def __init__(self) -> None:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-nmpf", "--mount-proc", "--kill-child"]
        self._unshare = subprocess.Popen(
            [*words, "sh", "-c", FURNISH], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._unshare.stdout is not None
        assert self._unshare.stdout.readline() == b"ready\n"
        self.pid = child_of(self._unshare.pid)
        self.programs: list[subprocess.Popen[bytes]] = []
        self.root = Path(f"/proc/{self.pid}/root")

    def words(self, *words: object) -> list[str]:
        return list(map(str, ["nsenter", "-t", self.pid, "-n", "-m", "-p", "--", *words]))

    def run(self, *words: object, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        env = {**os.environ, "KUBECONFIG": KUBECONFIG, "HOME": "/run/home"}
        return subprocess.run(
            self.words(*words), input=given, capture_output=True, timeout=2 * SECONDS, check=False, env=env
        )

    def output(self, *words: object, given: bytes = b"") -> str:
        done = self.run(*words, given=given)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}"
        return done.stdout.decode()

    def refused(self, *words: object) -> str:
        done = self.run(*words)
        assert done.returncode != 0, f"{words} did not fail\n{done.stdout.decode()}"
        return done.stderr.decode()

    def links(self) -> set[str]:
        return {item["ifname"] for item in json.loads(self.output("ip", "-j", "link"))}

    def mounts(self) -> list[str]:
        return [line.split()[4] for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()]

    def close(self) -> None:
        ids = [path.name for path in (self.root / SHIMS).glob("*")]
        os.kill(self.pid, signal.SIGKILL)
        self._unshare.communicate()
        for program in self.programs:
            program.wait()
        for path in [*groups(ids), *groups([""])]:
            with contextlib.suppress(OSError):  # another machine's containers may be in the last of them
                path.rmdir()


def groups(ids: Sequence[str]) -> list[Path]:
    """The cgroups that are there of containers, in every tree."""
    trees = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
    return [found for id_ in ids for tree in trees if (found := tree / "k8s.io" / id_).is_dir()]


def child_of(pid: int) -> int:
    """Of a process that has started one already, or is about to."""
    return eventually(lambda: [int(part) for part in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()])[0]


class Program:
    """A program on a machine; it can be killed and started again."""

    def __init__(self, machine: Machine, *command: object, log: str, **env: str) -> None:
        self._machine = machine
        self._command = command
        self._env = {**os.environ, **env}
        self.log = machine.root / log
        self._nsenter: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._nsenter = subprocess.Popen(
                self._machine.words(*self._command), stdout=log, stderr=log, env=self._env, stdin=subprocess.DEVNULL
            )
        self._machine.programs.append(self._nsenter)

    def kill(self) -> None:
        assert self._nsenter is not None
        os.kill(child_of(self._nsenter.pid), signal.SIGKILL)
        self._nsenter.wait()

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        assert self._nsenter is not None
        os.kill(child_of(self._nsenter.pid), signal.SIGTERM)
        return self._nsenter.wait(SECONDS)


class Containerd(Program):
    def __init__(self, machine: Machine, config: str, folder: Path) -> None:
        shims = Path(program("containerd-shim-runc-v2")).parent
        super().__init__(
            machine, program("containerd"), log="var/log/containerd.log", PATH=f"{shims}:{os.environ['PATH']}"
        )
        (machine.root / "etc/containerd/config.toml").write_text(config)
        self._folder = folder

    def start(self) -> None:
        super().start()
        eventually(lambda: self._machine.run(program("ctr"), "version").returncode == 0)

    def ctr(self, *words: object) -> str:
        return self._machine.output(program("ctr"), "-n", "k8s.io", *words)

    def bring(self, reference: str, *command: str) -> None:
        """Import an image of busybox by this name."""
        archive = self._folder / f"{uuid.uuid4().hex}.tar"
        build.archive_root(archive, reference, command=command or ("sh",))
        self.ctr("images", "import", archive)
        archive.unlink()

    def tasks(self) -> dict[str, int]:
        """Containers that run, by id, and their processes' pids."""
        rows = [line.split() for line in self.ctr("tasks", "list").splitlines()[1:]]
        return {id_: int(pid) for id_, pid, state in rows if state == "RUNNING"}

    def containers(self) -> set[str]:
        return set(self.ctr("containers", "list", "-q").split())


class Cluster:
    """Ours, on a machine with a containerd."""

    def __init__(self, machine: Machine, containerd: Containerd) -> None:
        self.machine = machine
        self.containerd = containerd

    def kubectl(self, *words: object, given: bytes = b"") -> str:
        return self.machine.output("kubectl", *words, given=given)

    def run(self, *scripts: str, name: str = "", wait: str = "condition=Ready", **spec: Any) -> "Pod":
        """A pod of these shell scripts; `wait` is what to wait for, if anything."""
        containers = [
            {"name": f"c{number}", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}
            for number, script in enumerate(scripts)
        ]
        fields = {"terminationGracePeriodSeconds": 1, "containers": containers, **spec}
        pod = Pod(self, name or f"pod-{uuid.uuid4().hex[:8]}")
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name}, "spec": fields}
        self.kubectl("create", "-f", "-", given=json.dumps(manifest).encode())
        if wait:
            pod.wait(wait)
        return pod

    def node(self) -> Any:
        return json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"][0]


class Pod:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name = name

    def wait(self, what: str) -> None:
        self._cluster.kubectl("wait", f"pod/{self.name}", f"--for={what}", f"--timeout={SECONDS:g}s")

    def until(self, path: str, value: str) -> None:
        self.wait(f"jsonpath={{.status.{path}}}={value}")

    @property
    def status(self) -> Any:
        return json.loads(self._cluster.kubectl("get", "pod", self.name, "-o", "json"))["status"]

    @property
    def ids(self) -> list[str]:
        """Of its containers, as containerd knows them."""
        return [status["containerID"].removeprefix("containerd://") for status in self.status["containerStatuses"]]

    def logs(self, *words: str) -> str:
        return self._cluster.kubectl("logs", self.name, *words)

    def exec(self, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return self._cluster.machine.run("kubectl", "exec", "-i", self.name, "-c", "c0", "--", *words, given=given)

    def delete(self, *words: str) -> None:
        self._cluster.kubectl("delete", "pod", self.name, *words)


def config_of_the_guide() -> str:
    found = re.search(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@contextlib.contextmanager
def machine_with_containerd(config: str, folder: Path) -> Iterator[Cluster]:
    machine = Machine()
    try:
        containerd = Containerd(machine, config, folder)
        containerd.start()
        containerd.bring(IMAGE)
        containerd.bring(PAUSE, "sleep", "1000000000")
        yield Cluster(machine, containerd)
    finally:
        machine.close()


def has_accounts(cluster: Cluster) -> bool:
    """Pods can be made as soon as their namespace has an account for them."""
    return cluster.machine.run("kubectl", "get", "serviceaccount", "default").returncode == 0


def logs_of(cluster: Cluster) -> dict[str, str]:
    files = [cluster.containerd.log, *(cluster.machine.root / "var/log/podwire").glob("*.log")]
    return {file.name: file.read_text() for file in files if file.exists()}


watched_clusters: list[Cluster] = []
"""Clusters that run now, for the report of a test that fails."""


@contextlib.contextmanager
def watched(cluster: Cluster) -> Iterator[Cluster]:
    """Its logs are shown when a test fails, and none of ours may show that it failed inside."""
    watched_clusters.append(cluster)
    try:
        yield cluster
        assert [text[-5000:] for text in logs_of(cluster).values() if "Traceback" in text] == []
    finally:
        watched_clusters.remove(cluster)
