"""Plugins that are stopped, or fail at any step, undo what they have begun; those that are killed are in `crash/`."""

import json
import subprocess

import pytest

from podwire.linux.net.network import KernelNetwork
from tests.eventually import eventually

DUAL = ("10.88.0.0/24", "fd88::/64")
ADDING = [
    "cni.bridge-recorded",
    "ipam.named",
    "ipam.taken",
    "cni.bridge-leased",
    "cni.bridge-bridged",
    "cni.bridge-connected",
    "cni.bridge-configured",
    "cni.bridge-attached",
    "cni.bridge-added",
]
DELETING = ["cni.bridge-unmasqueraded", "cni.bridge-detached", "ipam.freed", "cni.bridge-released"]


@pytest.mark.parametrize("point", [item for item in ADDING if item != "cni.bridge-added"])
def test_failed_add_undoes_itself(host, point):
    host.pod("a")
    code, stdout, _ = host.died("ADD", host.bridge(*DUAL, ipMasq=True), point, "error(disk on fire)")
    answer = json.loads(stdout)
    assert (code, answer["cniVersion"], answer["code"]) == (1, "1.1.0", 999)
    assert "disk on fire" in answer["msg"]
    assert host.left() == {}


@pytest.mark.parametrize("point", DELETING)
def test_failed_step_of_del_does_not_stop_the_others(host, point):
    host.pod("a")
    config = host.bridge(*DUAL, ipMasq=True)
    host.add("a", config)
    code, stdout, _ = host.died("DEL", config, point, "1*error(stuck)->off")
    assert (code, "stuck" in json.loads(stdout)["msg"]) == (1, True)
    assert "links" not in host.left()
    host.delete("a", config)
    assert host.left() == {}


def test_sigterm_undoes_an_add(host, tmp_path):
    host.pod("a")
    process = host.run(
        "ADD", "a", host.bridge(*DUAL, ipMasq=True), PODWIRE_FAILPOINTS=f"cni.bridge-configured=hold({tmp_path}/never)"
    )
    eventually((tmp_path / "never.held").exists)
    process.terminate()
    stdout, _ = process.communicate(timeout=30)
    assert (process.returncode, json.loads(stdout)["code"]) == (1, 11)
    assert host.left() == {}


def test_namespace_that_ends_during_add_is_an_error(host, tmp_path):
    host.pod("a")
    gate = tmp_path / "gate"
    process = host.run("ADD", "a", host.bridge(*DUAL), PODWIRE_FAILPOINTS=f"cni.bridge-leased=hold({gate})")
    eventually((tmp_path / "gate.held").exists)
    host.namespaces.remove("a")
    gate.touch()
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (1, b"")
    assert json.loads(stdout)["code"] == 8
    assert host.left() == {}


def test_concurrent_adds_get_distinct_addresses(host):
    config = host.bridge(*DUAL, ipMasq=True)
    names = [f"p{number}" for number in range(12)]
    for name in names:
        host.pod(name)
    results = [_finished(item) for item in [host.run("ADD", name, config) for name in names]]
    addresses = [address["address"] for result in results for address in result["ips"]]
    assert len(set(addresses)) == 24
    assert len({result["interfaces"][2]["mac"] for result in results}) == 12
    with KernelNetwork() as here:
        assert [link.kind for link in here.links.list()].count("bridge") == 1
    deleting = [host.run("DEL", name, config) for name in names[:6]]
    for name in names[6:]:
        host.pod(f"x{name}")
    adding = [host.run("ADD", f"x{name}", config) for name in names[6:]]
    for entry in deleting:
        _finished(entry)
    later = [address["address"] for process in adding for address in _finished(process)["ips"]]
    kept = [address["address"] for result in results[6:] for address in result["ips"]]
    assert len(set(later + kept)) == len(later + kept)
    for entry in [*names[6:], *(f"x{name}" for name in names[6:])]:
        host.delete(entry, config)
    assert host.left() == {}


def _finished(process: subprocess.Popen):
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, b""), stdout
    return json.loads(stdout) if stdout else None
