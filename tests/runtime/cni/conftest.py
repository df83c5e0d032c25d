"""Recorder plugins: scripts that record how they were called and give configured answers."""

import json
import os
from pathlib import Path

import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.cni import CniLimits, CniNetwork, Conflists, Plugins
from podwire.runtime.ports import Attachment

RECORDER = """#!/usr/bin/python3 -IS
import json, os, sys, time
here, name = os.path.split(os.path.abspath(__file__))
config = json.load(sys.stdin)
verb = os.environ["CNI_COMMAND"]
with open(here + "/calls.jsonl", "a") as file:
    file.write(json.dumps({"plugin": name, "verb": verb, "env": dict(os.environ), "config": config}) + "\\n")
script = json.load(open(here + "/script.json")).get(name + " " + verb, {})
time.sleep(script.get("sleep", 0))
sys.stderr.write(script.get("stderr", ""))
if "stdout" in script:
    sys.stdout.write(script["stdout"])
elif verb == "ADD":
    result = config.get("prevResult") or {
        "cniVersion": config["cniVersion"],
        "interfaces": [{"name": "br0"}, {"name": os.environ["CNI_IFNAME"], "sandbox": os.environ["CNI_NETNS"]}],
        "ips": [{"address": "fd00::5/64", "interface": 1}, {"address": "10.1.0.5/24", "interface": 1}],
    }
    print(json.dumps({**result, "by " + name: True}))
sys.stdout.flush()
if "signal" in script:
    os.kill(os.getpid(), script["signal"])
sys.exit(script.get("exit", 0))
"""


class Node:
    """Directories of a node, with recorder plugins in them."""

    def __init__(self, root: Path) -> None:
        self.bin, self.configs, self.cache = root / "bin", root / "net.d", root / "memory"
        self.bin.mkdir(mode=0o755)
        self.configs.mkdir()
        self.script({})

    def script(self, answers: dict) -> None:
        (self.bin / "script.json").write_text(json.dumps(answers))

    def plugin(self, name: str, text: str = RECORDER, mode: int = 0o755) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def network(self, *kinds: str, file: str = "10-net.conflist", **keys) -> None:
        plugins = [{"type": kind} if isinstance(kind, str) else kind for kind in kinds]
        config = {"cniVersion": "1.1.0", "name": "net", "plugins": plugins} | keys
        (self.configs / file).write_text(json.dumps(config))

    def calls(self) -> list[dict]:
        path = self.bin / "calls.jsonl"
        written = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in written.splitlines(keepends=True) if line.endswith("\n")]

    def called(self) -> list[str]:
        """Plugins and verbs, in the order of the calls."""
        return [f"{call['plugin']} {call['verb']}" for call in self.calls()]

    def cni(self, state: Path | None = None, **values) -> CniNetwork:
        limits = CniLimits(**values)
        plugins = Plugins([self.bin], limits, state=state)
        return CniNetwork(Conflists(self.configs), plugins, self.cache, limits=limits)


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    for name in ("one", "two", "three"):
        made.plugin(name)
    return made


NETNS = f"/proc/{os.getpid()}/ns/net"


@pytest.fixture
def pod():
    return Attachment(
        id="c0ffee",
        netns=NETNS,
        name="web",
        namespace="shop",
        uid="u-1",
        ports=(
            pb.PortMapping(protocol=pb.TCP, container_port=80, host_port=8080),
            pb.PortMapping(protocol=pb.UDP, container_port=53, host_port=5353, host_ip="10.0.0.1"),
            pb.PortMapping(protocol=pb.TCP, container_port=443),
        ),
        annotations={"kubernetes.io/ingress-bandwidth": "10M"},
    )
