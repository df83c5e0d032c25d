"""Machines made of network, mount, PID and UTS namespaces, and a switch between them that is also their router."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.eventually import eventually

PODWIRE = Path(sys.executable).with_name("podwire")
SECONDS = 90.0
FURNISH = """\
set -e
hostname {name}
mount -t proc proc /proc
ip link set lo up
for directory in /run /var/lib /var/log /opt /srv; do mount -t tmpfs machine $directory; done
mount -t tmpfs upper /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work etc /etc
echo ready
exec sleep infinity
"""


class Machine:
    """A machine of its own: everything that podwire may write to is in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-nmup", "--fork", "--kill-child"]
        words += ["sh", "-c", FURNISH.format(name=name)]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{self._child.pid}/task/{self._child.pid}/children").read_text()
        self.pid = int(children.split()[0])
        self.before = self.traces()

    def run(self, *words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        entered = ["nsenter", "-t", self.pid, "-n", "-m", "-u", "-p", "--", *words]
        return subprocess.run(
            list(map(str, entered)), input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def output(self, *words: object, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def sh(self, script: str) -> str:
        return self.output("sh", "-ec", script)

    def has(self, path: str) -> bool:
        return self.run("test", "-e", path).returncode == 0

    def traces(self) -> dict[str, str]:
        """Returns everything that a node could leave behind."""
        below = ["/run", "/var/lib", "/var/log", "/opt", *(["/etc/cni"] if self.has("/etc/cni") else [])]
        return {
            "files": self.output("find", *below, "-not", "-path", "/run/mount*"),
            "links": "\n".join(sorted(row["ifname"] for row in json.loads(self.output("ip", "-j", "link")))),
            "tables": self.output("nft", "list", "tables"),
            "mounts": self.output("cut", "-d", " ", "-f", "5", "/proc/self/mountinfo"),
            "routes": self.output("ip", "route", "show", "proto", "113"),
            "forwarding": self.output("cat", "/proc/sys/net/ipv4/ip_forward"),
        }

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


class Switch:
    """A network namespace with a bridge, which also routes between the segments on it."""

    def __init__(self) -> None:
        script = "ip link set lo up && ip link add br0 type bridge && ip link set br0 up"
        script += " && ip addr add 192.168.7.254/24 dev br0 && ip addr add 192.168.8.254/24 dev br0"
        script += " && echo 1 >/proc/sys/net/ipv4/ip_forward && echo ready && exec sleep infinity"
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-n", "sh", "-c", script]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"ready\n"

    def _sh(self, script: str) -> None:
        words = ["nsenter", "-t", str(self._child.pid), "-n", "sh", "-ec", script]
        subprocess.run(words, check=True, timeout=SECONDS)

    def connect(self, machine: Machine, address: str) -> None:
        port = f"to-{machine.name}"
        self._sh(f"ip link add {port} type veth peer name eth0 netns {machine.pid}; ip link set {port} master br0 up")
        machine.sh(f"ip addr add {address}/24 dev eth0; ip link set eth0 up; ip route add default via 192.168.7.254")

    def plug(self, machine: Machine, *, plugged: bool) -> None:
        """A cable that is not plugged in carries nothing; the machine does not notice by its own link."""
        self._sh(f"bridge link set dev to-{machine.name} state {3 if plugged else 0}")

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


class FirstMachine(Machine):
    """The machine with the control plane."""

    prefix = f"/srv/join-{os.getpid()}"

    def up(self, *flags: object) -> None:
        self.output(PODWIRE, "up", "--detach", "--prefix", self.prefix, *flags)

    def kubectl(self, *words: object, stdin: str = "") -> str:
        return self.output("kubectl", "--kubeconfig", f"{self.prefix}/var/lib/podwire/kubeconfig", *words, stdin=stdin)

    def token(self) -> dict[str, str]:
        found = json.loads(self.output(PODWIRE, "token", "create", "--prefix", self.prefix, "-o", "json"))
        return {"server": found["server"], "token": found["token"], "hash": found["caCertHashes"][0]}

    def node(self, name: str) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "node", name, "-o", "json"))

    def pod(self, name: str) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "pod", name, "-o", "json"))

    def start(self, name: str, node: str, **labels: str) -> str:
        """Starts a pod with a web page that has its name, on a node; returns its address."""
        script = f"mkdir /www && echo {name} >/www/index.html && exec httpd -f -v -p 80 -h /www"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "podwire.local/busybox:latest", "command": ["sh", "-c", script]}],
            },
        }
        eventually(lambda: "default" in self.kubectl("get", "serviceaccounts", "-o", "name"))
        self.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
        return str(self.pod(name)["status"]["podIP"])

    def page(self, pod: str, address: str) -> str:
        """Returns the page at an address as a pod reads it; empty if it does not answer."""
        script = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} 80 | tail -1"
        words = ["kubectl", "--kubeconfig", f"{self.prefix}/var/lib/podwire/kubeconfig", "exec", pod, "--", "sh", "-c"]
        return self.run(*words, script).stdout.strip()
