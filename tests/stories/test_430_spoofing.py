"""The network of `podwire up`: a pod that poses as somebody else is not heard, and an honest one is.

Frames are written by hand in the namespace of a real pod, and listened for in that of its neighbour.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually

PODWIRE = Path(sys.executable).with_name("podwire")
SECONDS = 90.0
SEND = """
import json, socket, sys
from podwire.linux.proc.namespaces import visit

speaker, listener, frames = json.load(sys.stdin)
with visit(listener):
    hears = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
with visit(speaker):
    speaks = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
hears.settimeout(60)
speaks.bind(("eth0", 0))
for each in frames.values():
    speaks.send(bytes.fromhex(each))
arrived, last = [], list(frames)[-1]
while last not in arrived:
    got = hears.recv(2048)
    arrived += [name for name, each in frames.items() if got.startswith(bytes.fromhex(each))]
print(json.dumps(arrived))
"""
EVERYBODY, SOMEBODY = b"\xff" * 6, bytes.fromhex("02deadbeef01")
ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")


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

    def output(self, *words: object, stdin: str = "") -> str:
        entered = ["nsenter", "-t", self._child.pid, "-n", "-m", "--", *words]
        done = subprocess.run(
            list(map(str, entered)), input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def podwire(self, command: str, *words: object, stdin: str = "") -> str:
        return self.output(PODWIRE, *command.split(), "--prefix", self.prefix, *words, stdin=stdin)

    def kubectl(self, *words: object, stdin: str = "") -> str:
        return self.output("kubectl", "--kubeconfig", self.prefix / "var/lib/podwire/kubeconfig", *words, stdin=stdin)

    def run_pods(self, *names: str) -> None:
        eventually(lambda: "default" in self.kubectl("get", "serviceaccounts", "-o", "name"), SECONDS)
        image = "podwire.local/busybox:latest"
        for name in names:
            self.kubectl("run", name, f"--image={image}", "--", "sh", "-c", "echo hello >/tmp/x; exec httpd -f -h /tmp")
        for name in names:
            self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    def ips(self, name: str) -> list[str]:
        pod = json.loads(self.kubectl("get", "pod", name, "-o", "json"))
        return [address["ip"] for address in pod["status"]["podIPs"]]

    def netns(self, ip: str) -> str:
        """Where the namespace of the pod with this address is, as the node sees it."""
        for name in self.podwire("node exec", "node-1", "--", "ls", "/run/netns").split():
            addresses = self.podwire(
                "node exec", "node-1", "--", "nsenter", f"--net=/run/netns/{name}", "ip", "-o", "addr"
            )
            if f" {ip}/" in addresses:
                return f"/run/netns/{name}"
        raise AssertionError(f"nobody has {ip}")

    def arrived(self, speaker: str, listener: str, frames: dict[str, bytes]) -> list[str]:
        """Frames from one pod that its neighbour receives; the last must arrive."""
        request = json.dumps([speaker, listener, {name: each.hex() for name, each in frames.items()}])
        said = self.podwire("node exec", "node-1", "--", sys.executable, "-c", SEND, stdin=request)
        return list(json.loads(said))

    def close(self) -> None:
        try:
            self.podwire("down --force")
        finally:
            self._child.kill()
            self._child.communicate()
            shutil.rmtree(self.prefix, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    try:
        made.podwire("up --detach")
        yield made
    finally:
        made.close()


def frame(kind: int, payload: bytes, source: bytes) -> bytes:
    return EVERYBODY + source + kind.to_bytes(2, "big") + payload


def ipv4(source: bytes, text: bytes) -> bytes:
    """A datagram to everybody; its header's sum is right, or the bridge itself would drop it."""
    head = bytes((0x45, 0)) + (28 + len(text)).to_bytes(2, "big") + bytes(4) + bytes((64, 17))
    ends = source + b"\xff" * 4
    total = sum(int.from_bytes((head + ends)[at : at + 2], "big") for at in range(0, 18, 2))
    datagram = (9).to_bytes(2, "big") * 2 + (8 + len(text)).to_bytes(2, "big") + bytes(2) + text
    return head + (~(total % 0xFFFF) & 0xFFFF).to_bytes(2, "big") + ends + datagram


def arp(mac: bytes, ip: bytes) -> bytes:
    return bytes.fromhex("0001080006040002") + mac + ip + EVERYBODY + bytes(4)


def router_advertisement(source: bytes) -> bytes:
    body = bytes((134, 0, 0, 0)) + bytes(20)
    return b"\x60\0\0\0" + len(body).to_bytes(2, "big") + bytes((58, 255)) + source + ALL_NODES + body


def test_spoofed_frames_are_dropped_and_honest_ones_arrive(cluster: Cluster):
    cluster.run_pods("honest", "liar")
    ips = {name: cluster.ips(name) for name in ("honest", "liar")}
    liar, honest = cluster.netns(ips["liar"][0]), cluster.netns(ips["honest"][0])
    output = cluster.podwire(
        "node exec", "node-1", "--", "nsenter", f"--net={liar}", "ip", "-j", "addr", "show", "eth0"
    )
    [link] = json.loads(output)
    mac = bytes.fromhex(link["address"].replace(":", ""))
    own = bytes(map(int, ips["liar"][0].split(".")))
    gateway = own[:3] + b"\x01"
    local = b"\xfe\x80" + bytes(6) + bytes((mac[0] ^ 2,)) + mac[1:3] + b"\xff\xfe" + mac[3:]
    frames = {
        "another's IP address": frame(0x800, ipv4(gateway, b"I am the gateway"), mac),
        "another's MAC address": frame(0x800, ipv4(own, b"I am somebody"), SOMEBODY),
        "an ARP claim of the gateway": frame(0x806, arp(mac, gateway), mac),
        "a router's advertisement": frame(0x86DD, router_advertisement(local), mac),
        "its own ARP claim": frame(0x806, arp(mac, own), mac),
        "its own address": frame(0x800, ipv4(own, b"I am who I am"), mac),
    }
    assert cluster.arrived(liar, honest, frames) == ["its own ARP claim", "its own address"]
    for one, other in (("liar", "honest"), ("honest", "liar")):
        assert cluster.kubectl("exec", one, "--", "wget", "-qO-", f"http://{ips[other][0]}/x") == "hello\n"
    assert cluster.podwire("leakcheck").strip() == "no leftovers"
