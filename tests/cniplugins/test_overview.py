"""`podwire cni list` and `podwire cni pools`, as a user runs them on a host."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podwire.protocols.cni.errors import CniError
from podwire.runtime.cni.check_results import CHECKS, CheckResults
from podwire.runtime.cni.plugins import PluginFailed

PODWIRE = str(Path(sys.executable).with_name("podwire"))


@pytest.fixture
def podwire(host):
    def run(*words, code=0):
        done = subprocess.run([PODWIRE, "cni", *words], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done

    return run


def test_attachments_are_listed_with_their_owners(host, podwire):
    assert podwire("list", "--data-dir", str(host.records)).stdout.split() == [
        "NETWORK",
        "CONTAINER",
        "INTERFACE",
        "IPS",
        "AGE",
        "ALIVE",
        "CHECK",
    ]
    config = host.bridge()
    for letter in "ab":
        host.pod(letter)
        result = host.add(letter, config)
    host.add("b", host.portmap(result, {"hostPort": 8080, "containerPort": 80}))
    host.namespaces.remove("a")
    first, second = json.loads(podwire("list", "--data-dir", str(host.records), "-o", "json").stdout)
    assert (first["container_id"], first["ips"], first["alive"]) == ("a", ["10.88.0.2/24"], False)
    assert (second["container_id"], second["plugins"], second["alive"]) == ("b", ["bridge", "portmap"], True)
    lines = podwire("list", "--data-dir", str(host.records)).stdout.splitlines()
    assert [line.split()[1:6:2] for line in lines[1:]] == [["a", "10.88.0.2/24", "no"], ["b", "10.88.0.3/24", "yes"]]
    assert [line.split()[6:] for line in lines[1:]] == [["-"], ["-"]], "nobody checks them"


def test_check_results_of_a_runtime_are_listed(host, podwire):
    config = host.bridge()
    for letter in "ab":
        host.pod(letter)
        host.add(letter, config)
    checks = CheckResults(host.records.parent / CHECKS)
    checks.record("a", None, 1.0)
    checks.record("b", PluginFailed("bridge", "CHECK", CniError(101, "eth0 is down")), time.time())
    first, second = json.loads(podwire("list", "--data-dir", str(host.records), "-o", "json").stdout)
    assert first["check"] == dict.fromkeys(("since", "checkedAt"), "1970-01-01T00:00:01.000000Z") | {"state": "ok"}
    assert {key: second["check"][key] for key in ("state", "plugin", "code", "msg")} == {
        "state": "failed", "plugin": "bridge", "code": 101, "msg": "eth0 is down"
    }  # fmt: skip
    lines = podwire("list", "--data-dir", str(host.records)).stdout.splitlines()
    assert lines[1].split()[6:] == ["ok"]
    assert re.search(r"failed \d+s: CNI plugin bridge failed CHECK: code 101: eth0 is down$", lines[2])


def test_pools_of_all_networks_are_counted(host, podwire, tmp_path):
    folder = tmp_path / "net.d"
    folder.mkdir()
    config = host.bridge("10.88.0.0/29", "fd88::/64")
    (folder / "10.conflist").write_text(json.dumps(config | {"plugins": [config]}))
    (folder / "20.conf").write_text(json.dumps({"name": "other", "type": "loopback"}))
    for letter in "ab":
        host.pod(letter)
        host.add(letter, config)
    host.namespaces.remove("a")
    four, six = json.loads(podwire("pools", "--conf-dir", str(folder), "-o", "json").stdout)
    assert (four["size"], four["used"], four["free"], four["dead"]) == (5, 2, 3, 1)
    assert (six["used"], six["free"]) == (2, 2**64 - 4)
    assert four["oldest"]["containerID"] == "a"
    (folder / "30.conf").write_text("{")
    done = podwire("pools", "--conf-dir", str(folder), code=1)
    assert done.stdout.splitlines()[1].split()[:7] == ["net", "10.88.0.1", "to", "10.88.0.6", "2", "3", "1"]
    assert "30.conf: not valid JSON" in done.stderr
