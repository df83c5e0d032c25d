"""A plugin that is killed at any step, started again: nothing is lost, nothing is left, every device comes back."""

import json
import os
import random
import time
import urllib.request

import pytest

from tests.eventually import eventually

NICS = {"name": "nics", "interfaces": {"names": ["nic*"]}}
VETHS = {"name": "veths", "make": {"kind": "veth", "parent": "br0", "count": 3, "prefix": "pv"}}
MACVLANS = {"name": "vlans", "make": {"kind": "macvlan", "parent": "far1", "count": 3, "prefix": "mv"}}
TAPS = {"name": "taps", "make": {"kind": "tap", "parent": "br0", "count": 3, "prefix": "tp"}}
NIC = "net.podwire.dev/nics"

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run; set it to repeat a run."""

MADE = [(pool, step) for pool in (VETHS, MACVLANS, TAPS) for step in ("made", "removed", "registered")]
SAMPLE = MADE if SOAK else random.Random(SEED).sample(MADE, 3)


@pytest.fixture
def nic(host):
    def make():
        host.ip("link add nic0 address 02:00:00:00:00:01 type veth peer name far1")
        host.ip("link set nic0 mtu 1400 up")
        host.ip("link set far1 up")
        host.ip("addr add 10.9.1.1/24 dev nic0 brd +")
        host.ip("addr add fd09::1/64 dev nic0 nodad")
        eventually(lambda: "fe80" in json.dumps(host.ip("addr show nic0")))
        eventually(lambda: "tentative" not in json.dumps(host.ip("addr show")))

    return make


def same(host, link, before):
    return any(item["ifname"] == link for item in host.ip("link show")) and host.dump(link) == before


def test_plugin_killed_before_registration_starts_again(host, nic):
    nic()
    host.kubelet.start()
    host.start([NICS], PODWIRE_FAILPOINTS="device-plugin.recorded=kill")
    host.wait_dead()
    assert host.kubelet.registered.empty()
    assert host.records("nics")["nic0"]["out"] is False
    host.start([NICS])
    host.kubelet.wait_registered()
    host.kubelet.plugin("nics").until(nic0="Healthy")


@pytest.mark.parametrize("held", [True, False], ids=["and the pod is there", "and the pod has gone"])
def test_a_plugin_killed_between_record_and_answer_knows_that_the_device_is_out(host, nic, held):
    nic()
    host.kubelet.start()
    host.start([NICS], PODWIRE_FAILPOINTS="device-plugin.out=kill")
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    before = host.dump("nic0")
    with pytest.raises(Exception, match=r"UNAVAILABLE|Socket closed|reset"):
        plugin.allocate("nic0")
    host.wait_dead()
    assert host.records("nics")["nic0"]["out"] is True
    host.ip("link set nic0 down mtu 1300")
    if held:
        host.kubelet.pods["web"] = {NIC: ["nic0"]}
    host.start([NICS])
    host.kubelet.wait_registered()
    if held:
        host.kubelet.wait_until_asked()
        assert host.ip("link show nic0")[0]["mtu"] == 1300
        del host.kubelet.pods["web"]
    eventually(lambda: same(host, "nic0", before))


def test_device_that_returns_without_a_plugin_is_restored_by_the_next_one(host, nic):
    nic()
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    before = host.dump("nic0")
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    pod = host.namespaces.create("pod").path
    host.move_in("nic0", pod)
    plugin.allocate("nic0")
    host.kill()
    host.move_out(pod, "eth0", "nic0")
    host.kubelet.pods.clear()
    host.start([NICS])
    host.kubelet.wait_registered()
    eventually(lambda: same(host, "nic0", before))


def test_device_without_a_record_of_leaving_is_recognised_by_its_changes(host, nic):
    nic()
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    host.kubelet.plugin("nics").until(nic0="Healthy")
    before = host.dump("nic0")
    host.kill()
    pod = host.namespaces.create("pod").path
    host.move_in("nic0", pod)
    host.move_out(pod, "eth0", "nic0")
    host.start([NICS])
    host.kubelet.wait_registered()
    eventually(lambda: same(host, "nic0", before))


def test_a_device_that_is_in_its_pod_stays_there_and_is_followed(host, nic):
    nic()
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    before = host.dump("nic0")
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    pod = host.namespaces.create("pod").path
    host.move_in("nic0", pod)
    plugin.allocate("nic0")
    host.inside(pod, "ip", "link", "set", "eth0", "up")
    host.kill()
    host.start([NICS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    host.ip("link set far1 down")
    plugin.until(nic0="Unhealthy")
    host.ip("link set far1 up")
    plugin.until(nic0="Healthy")
    host.move_out(pod, "eth0", "other")
    host.kubelet.pods.clear()
    eventually(lambda: same(host, "nic0", before))


def test_a_plugin_killed_while_it_restores_is_followed_by_one_that_does(host, nic):
    nic()
    host.kubelet.start()
    host.start([NICS], PODWIRE_FAILPOINTS="device-plugin.restored=kill")
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    before = host.dump("nic0")
    pod = host.namespaces.create("pod").path
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    host.move_in("nic0", pod)
    plugin.allocate("nic0")
    host.move_out(pod, "eth0", "nic0")
    host.wait_dead()
    host.kubelet.pods.clear()
    host.start([NICS])
    host.kubelet.wait_registered()
    eventually(lambda: not host.records("nics")["nic0"]["out"])
    eventually(lambda: same(host, "nic0", before))


@pytest.mark.parametrize(("pool", "step"), SAMPLE, ids=lambda each: each if isinstance(each, str) else each["name"])
def test_plugin_killed_while_it_makes_links_leaves_no_orphans(host, nic, pool, step):
    nic()
    host.ip("link add br0 up type bridge")
    host.kubelet.start()
    prefix, resource = pool["make"]["prefix"], f"net.podwire.dev/{pool['name']}"
    names = [f"{prefix}{number}" for number in range(3)]
    host.start([pool], PODWIRE_FAILPOINTS=f"device-plugin.{step}=kill")
    if step == "removed":
        host.kubelet.wait_registered()
        host.kubelet.plugin(pool["name"]).until(**dict.fromkeys(names, "Healthy"))
        pod = host.namespaces.create("pod").path
        host.kubelet.pods["web"] = {resource: [names[0]]}
        host.move_in(names[0], pod)
        host.kubelet.plugin(pool["name"]).allocate(names[0])
        host.move_out(pod, "eth0", names[0])
    host.wait_dead()
    host.kubelet.pods.clear()
    host.start([pool])
    host.kubelet.wait_registered()
    host.kubelet.plugin(pool["name"]).until(**dict.fromkeys(names, "Healthy"))
    assert host.stop() == 0
    assert {item["ifname"] for item in host.ip("link show")} == {"lo", "nic0", "far1", "br0"}


def test_cdi_file_of_an_unanswered_allocation_is_removed(host, nic):
    nic()
    host.kubelet.start()
    host.start([NICS | {"cdi": True}], PODWIRE_FAILPOINTS="device-plugin.cdi-written=kill")
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    with pytest.raises(Exception, match=r"UNAVAILABLE|Socket closed|reset"):
        plugin.allocate("nic0")
    host.wait_dead()
    assert len(list(host.cdi.iterdir())) == 1
    host.start([NICS | {"cdi": True}])
    host.kubelet.wait_registered()
    eventually(lambda: not list(host.cdi.iterdir()))


def test_a_cdi_file_that_was_lost_is_there_again_for_a_pod_that_has_the_device(host, nic):
    nic()
    host.kubelet.start()
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    host.start([NICS | {"cdi": True}])
    host.kubelet.wait_registered()
    eventually(lambda: host.cdi.is_dir() and list(host.cdi.iterdir()))


def test_damaged_records_are_quarantined_logged_and_counted(host, nic):
    nic()
    file = host.state / "pools" / "nics" / "nic0.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"device": {}, "checksum": 5}')
    host.kubelet.start()
    host.start([NICS], "--listen", "127.0.0.1:8471")  # in a network namespace of its own
    host.kubelet.wait_registered()
    host.kubelet.plugin("nics").until(nic0="Healthy")
    assert file.with_name("nic0.json.damaged").exists()
    assert "checksum mismatch" in host.log.read_text()
    page = urllib.request.urlopen("http://127.0.0.1:8471/metrics", timeout=20).read().decode()
    assert 'podwire_device_plugin_damaged_records{pool="nics"} 1' in page
    assert 'podwire_device_plugin_devices{pool="nics",health="healthy"} 1' in page


@pytest.mark.parametrize("content", [None, "", "garbage"], ids=["missing", "empty", "damaged"])
def test_a_made_veth_stays_in_its_pod_when_its_record_is_lost(host, content):
    """A kubelet that was just started does not know the pod yet; the host's end of the veth says that it is away."""
    host.ip("link add br0 up type bridge")
    host.kubelet.start()
    host.start([VETHS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("veths")
    plugin.until(pv0="Healthy", pv1="Healthy", pv2="Healthy")
    pod = host.namespaces.create("pod").path
    host.move_in("pv0", pod)
    plugin.allocate("pv0")
    kept = host.ip("link show pv0-h")[0]["ifindex"]
    host.kill()
    records = host.state / "pools/veths"
    (records / "pv0.json").unlink()
    if content is not None:
        (records / "pv0.json").write_text(content)
    (records / "pv1.json").unlink()
    host.ip("link del pv1-h")
    host.start([VETHS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("veths")
    plugin.until(pv1="Healthy", pv2="Healthy")
    host.kubelet.wait_until_asked()
    assert host.ip("link show pv0-h")[0]["ifindex"] == kept
    assert "eth0" in host.inside(pod, "ip", "link", "show", "eth0")
    host.kubelet.pods["web"] = {"net.podwire.dev/veths": ["pv0"]}
    plugin.until(pv0="Healthy", pv1="Healthy", pv2="Healthy")
    assert host.ip("link show pv0-h")[0]["ifindex"] == kept
    host.kubelet.pods.clear()
    host.namespaces.remove("pod")
    eventually(lambda: "pv0" in {link["ifname"] for link in host.ip("link show")})
