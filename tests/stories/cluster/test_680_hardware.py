"""`podwire up --hardware`: programs on the node find cards that nobody has, pods get them, and packets go between."""

import contextlib
import json
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from podwire.runtime.images.build import ROOT_REFERENCE

VF = "net.podwire.dev/vfs"
POOLS = {"pools": [{"name": "vfs", "interfaces": {"drivers": ["iavf"], "numaNodes": [0]}}]}
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "vfs",
    "plugins": [
        {
            "type": "host-device",
            "resourceName": VF,
            "capabilities": {"deviceID": True},
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]]},
        }
    ],
}
SERVING = 'mkdir /www && echo "$HOSTNAME" >/www/index.html && exec httpd -f -p 80 -h /www'
pytestmark = pytest.mark.timeout(400)


def pod(name):
    container = {
        "name": "main",
        "image": ROOT_REFERENCE,
        "command": ["sh", "-c", SERVING],
        "resources": {"limits": {VF: "1"}},
    }
    spec = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def on_node(cluster, *words):
    return cluster.space.run(cluster.program, "node", "exec", "--prefix", cluster.prefix, "node-1", "--", *words)


def read(cluster, *words):
    done = on_node(cluster, *words)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def links(cluster):
    """The node's cards, with all that must be the same after a pod had one."""
    keys = ("address", "mtu", "operstate", "txqlen", "flags")
    found = json.loads(read(cluster, "ip", "-j", "link", "show"))
    return {item["ifname"]: tuple(str(item[key]) for key in keys) for item in found if item["ifname"].startswith("ens")}


def files(cluster, card, *names):
    return [read(cluster, "cat", f"/sys/class/net/{card}/{name}").strip() for name in names]


def allocatable(cluster):
    found = cluster.get("nodes", "node-1")
    return found and found["status"]["allocatable"].get(VF)


@contextlib.contextmanager
def device_plugin(cluster):
    """On the node, as a person would start it there."""
    file = cluster.prefix / "copy"
    file.write_text(yaml.safe_dump(POOLS))
    network = cluster.prefix / "etc/cni/net.d/00-vfs.conflist"
    network.write_text(json.dumps(NETWORK))
    words = ["node", "exec", "--prefix", cluster.prefix, "node-1", "--"]
    words += [cluster.program, "device-plugin", "--config", file]
    with (cluster.layout.logs / "device-plugin.log").open("wb") as log:
        process = subprocess.Popen(cluster.space.command(cluster.program, *words), stdout=log, stderr=log)
    try:
        cluster.eventually(lambda: allocatable(cluster) == "8", "eight virtual functions", cluster.logs)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        network.unlink()


def has(cluster, name):
    """The devices that a pod was given."""
    text = cluster.output("exec", name, "--", "sh", "-c", "echo $PODWIRE_DEVICE_VFS_INFO")
    (device,) = json.loads(text)
    return device


def test_virtual_functions_go_into_pods_and_come_back_as_they_were(cluster):
    cluster.up("--hardware", "sriov")
    before = links(cluster)
    assert len(before) == 10
    with device_plugin(cluster):
        cluster.apply(pod("a"), pod("b"))
        pods = cluster.running(2)
        devices = {name: has(cluster, name) for name in pods}
        assert {device["numaNode"] for device in devices.values()} == {0}
        assert len({device["pciAddress"] for device in devices.values()}) == 2
        held = {device["name"] for device in devices.values()}
        assert set(links(cluster)) == set(before) - held
        for name, other in (("a", "b"), ("b", "a")):
            address = cluster.output("exec", name, "--", "cat", "/sys/class/net/eth0/address").strip()
            assert address == before[devices[name]["name"]][0]
            page = cluster.output("exec", name, "--", "wget", "-qO-", f"http://{pods[other]['status']['podIP']}/")
            assert page.strip() == other
        away = devices["a"]["name"]
        card = {"ens1f0": "../0000:3b:00.0", "ens1f1": "../0000:3b:00.1"}[away[:6]]
        assert read(cluster, "readlink", f"/sys/class/net/{away}/device/physfn").strip() == card
        assert cluster.podwire("hardware", "unplug", away).returncode == 0
        cluster.eventually(lambda: allocatable(cluster) == "7", "the one without a cable is ill", cluster.logs)
        assert cluster.podwire("hardware", "plug", away).returncode == 0
        cluster.eventually(lambda: allocatable(cluster) == "8", "it is well again", cluster.logs)
        cluster.delete_all()
        cluster.eventually(lambda: links(cluster) == before, "all are back", lambda: str(links(cluster)))
    assert files(cluster, away, "device/numa_node", "speed", "carrier", "mtu") == ["0", "25000", "1", "1500"]
    cluster.down()


def test_cards_are_restored_whichever_component_dies(cluster):
    cluster.up("--hardware", "sriov")
    before = links(cluster)
    read(cluster, "ip", "netns", "add", "x")
    read(cluster, "ip", "link", "set", "ens1f0v0", "netns", "x")
    assert "ens1f0v0" not in links(cluster)
    cluster.signal("hardware")
    cluster.eventually(lambda: cluster.restarts("hardware") and cluster.is_up(), "it is back")
    assert "ens1f0v0" not in links(cluster), "a card that is elsewhere is left there"
    read(cluster, "ip", "netns", "del", "x")
    cluster.eventually(lambda: set(links(cluster)) == set(before), "the kernel brings hardware home", cluster.logs)
    assert links(cluster)["ens1f0v0"][0] == before["ens1f0v0"][0]
    read(cluster, "ip", "link", "set", "ens1f1", "down")
    read(cluster, "ip", "link", "set", "ens1f1", "name", "fast0")
    found = "/sys/bus/pci/devices/0000:3b:00.1/net"
    cluster.eventually(lambda: read(cluster, "ls", found).split() == ["fast0"], "its files follow its name")
    assert files(cluster, "fast0", "device/sriov_numvfs", "device/uevent")[0] == "4"
    cluster.reboot()
    cluster.up()
    assert links(cluster) == before
    assert files(cluster, "ens1f0v0", "device/vendor", "carrier") == ["0x8086", "1"]
    cluster.down()


def test_other_hardware_is_not_taken_for_a_cluster_that_has_some(cluster):
    cluster.up("--hardware", "sriov")
    cluster.up()  # the same as before
    assert Path("/sys/bus/pci/devices/0000:3b:02.0").exists() is False, "only the node has it"
    cluster.kill_everything()
    refused = cluster.podwire("up", "--detach", "--hardware", "two-numa")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "this cluster was made with other hardware; `podwire down` it first" in refused.stderr
    cluster.down()
