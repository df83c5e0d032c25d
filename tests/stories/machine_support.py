"""A machine made of two namespaces, and clusters on it as a person runs them: `podwire up --prefix DIR`."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from podwire.cluster.runtime import Options
from podwire.linux.cgroups.groups import KernelCgroups
from tests.eventually import eventually

PODWIRE = Path(sys.executable).with_name("podwire")
BEGINNING, OWNER = "pwup-", ".owner"
SECONDS = 90.0
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "web",
                "image": "podwire.local/busybox:latest",
                "command": ["sh", "-c", "mkdir /www && echo it works >/www/index.html && exec httpd -f -p 80 -h /www"],
            }
        ],
    },
}


class Machine:
    """A network and a mount namespace that live as long as the story."""

    def __init__(self) -> None:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-nm", "sh", "-c"]
        words += ["ip link set lo up && echo ready && exec sleep infinity"]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"ready\n"

    def words(self, *words: object) -> list[str]:
        return list(map(str, ["nsenter", "-t", self._child.pid, "-n", "-m", "--", *words]))

    def run(self, *words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def output(self, *words: object, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def links(self) -> set[str]:
        return {item["ifname"] for item in json.loads(self.output("ip", "-j", "link"))}

    def mounts(self) -> str:
        return Path(f"/proc/{self._child.pid}/mountinfo").read_text()

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


class Cluster:
    """A prefix on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.prefix = Path(tempfile.mkdtemp(prefix=BEGINNING, dir="/tmp"))
        (self.prefix / OWNER).write_text(str(os.getpid()))
        self.kubeconfig = self.prefix / "var/lib/podwire/kubeconfig"

    def podwire(self, command: str, *words: object) -> subprocess.CompletedProcess[str]:
        return self.machine.run(PODWIRE, *command.split(), "--prefix", self.prefix, *words)

    def up(self, *words: object) -> str:
        done = self.podwire("up --detach", *words)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def down(self) -> None:
        done = self.podwire("down")
        assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}{done.stderr}"

    def kubectl(self, *words: object, stdin: str = "") -> str:
        return self.machine.output("kubectl", "--kubeconfig", self.kubeconfig, *words, stdin=stdin)

    def run_pod(self) -> str:
        """A web server; its address."""
        self.until_account()
        self.kubectl("apply", "-f", "-", stdin=json.dumps(POD))
        self.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
        return self.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")

    def until_account(self) -> None:
        """No pod is taken before its service account is there; a controller makes it after the start."""
        words = ("kubectl", "--kubeconfig", self.kubeconfig, "get", "serviceaccount", "default")
        eventually(lambda: self.machine.run(*words).returncode == 0, SECONDS)

    def page(self, ip: str) -> str:
        return self.machine.output("curl", "-s", "-m", "20", f"http://{ip}/")

    def status(self) -> dict[str, Any]:
        return json.loads(self.podwire("status -o json").stdout)

    def kill_all(self) -> None:
        """Every process of ours at once, and wait until they are gone."""
        pids = [component["pid"] for component in self.status()["components"] if component["pid"]]
        opened = [os.pidfd_open(pid) for pid in pids]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for item in opened:
            _ended(item)
            os.close(item)

    def leakcheck(self) -> tuple[int, list[Any]]:
        done = self.podwire("leakcheck -o json")
        return done.returncode, json.loads(done.stdout)

    def left(self) -> list[str]:
        """Leftovers after everything was removed, searched without podwire."""
        files = [str(path) for path in self.prefix.rglob("*") if path.name != OWNER] if self.prefix.exists() else []
        groups = KernelCgroups().below(Options(socket=self.prefix, prefix=self.prefix).cgroup_parent)
        links = sorted(self.machine.links() - {"lo"})
        mounts = [line for line in self.machine.mounts().splitlines() if str(self.prefix) in line]
        tables = self.machine.output("nft", "list", "tables").split("\n")
        return [*files, *groups, *links, *mounts, *filter(None, tables), *map(str, named_by(self.prefix))]

    def close(self) -> None:
        self.podwire("down --force")
        shutil.rmtree(self.prefix, ignore_errors=True)


def _ended(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(SECONDS * 1000), "a killed process did not end"


def named_by(prefix: Path) -> list[int]:
    """Processes that have the prefix in their command line, or a file below it open."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"--prefix\0{prefix}\0".encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found
