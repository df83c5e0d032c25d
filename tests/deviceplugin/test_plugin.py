"""The plugin's process, on a host of its own, beside a kubelet that is plain grpcio."""

import json
import os
import subprocess

import grpc
import pytest

from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from tests.eventually import eventually

TUN = {"name": "tun", "files": {"paths": ["/dev/net/tun"], "count": 3}}
NICS = {"name": "nics", "interfaces": {"names": ["nic*"]}}
VETHS = {"name": "veths", "make": {"kind": "veth", "parent": "br0", "count": 2, "prefix": "pv"}}
MACVLANS = {"name": "vlans", "make": {"kind": "macvlan", "parent": "up0", "count": 2, "prefix": "mv", "mtu": 1400}}
TAPS = {"name": "taps", "make": {"kind": "tap", "parent": "br0", "count": 2, "prefix": "tp"}}
NIC = "net.podwire.dev/nics"


@pytest.fixture
def nics(host):
    """Links that stand for hardware, with all that can be set on one; each has its far end on the host."""

    def make(*names):
        for number, name in enumerate(names, 1):
            host.ip(f"link add {name} address 02:00:00:00:00:0{number} txqueuelen 77 type veth peer name far{number}")
            host.ip(f"link set {name} mtu 1400 up")
            host.ip(f"link set far{number} up")
            host.ip(f"addr add 10.9.{number}.1/24 dev {name} brd + label {name}")
            host.ip(f"addr add 10.9.{number}.9/32 dev {name} noprefixroute")
            host.ip(f"addr add fd09::{number}/64 dev {name} nodad")
        eventually(lambda: "tentative" not in json.dumps(host.ip("addr show")))

    return make


def as_before(host, link, before):
    """Wait until a link is, to the last word, what it was."""
    found = [None]

    def same():
        there = [item for item in host.ip("link show") if item["ifname"] == link]
        found[0] = host.dump(link) if there else None
        return found[0] == before

    try:
        eventually(same)
    except AssertionError:
        assert found[0] == before


def test_pools_are_registered_and_listed(host):
    host.ip("link add br0 up type bridge")
    host.kubelet.start()
    host.start([TUN, VETHS])
    document = {item.resource_name: item for item in (host.kubelet.wait_registered(), host.kubelet.wait_registered())}
    assert sorted(document) == ["net.podwire.dev/tun", "net.podwire.dev/veths"]
    assert document["net.podwire.dev/tun"].version == "v1beta1"
    assert document["net.podwire.dev/tun"].endpoint == "podwire-tun.sock"
    assert not document["net.podwire.dev/tun"].options.get_preferred_allocation_available
    listed = host.kubelet.plugin("tun").next()
    assert {name: each.health for name, each in listed.items()} == {f"tun-{n}": "Healthy" for n in range(3)}
    assert sorted(host.kubelet.plugin("veths").until(pv0="Healthy", pv1="Healthy")) == ["pv0", "pv1"]
    options = host.kubelet.plugin("tun").call("GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions)
    assert (options.pre_start_required, options.get_preferred_allocation_available) == (False, False)


def test_device_file_is_allocated_with_its_variable_and_permissions(host):
    host.kubelet.start()
    host.start([TUN])
    host.kubelet.wait_registered()
    answer = host.kubelet.plugin("tun").allocate("tun-1")
    assert [(device.container_path, device.host_path, device.permissions) for device in answer.devices] == [
        ("/dev/net/tun", "/dev/net/tun", "rw")
    ]
    assert answer.envs["PODWIRE_DEVICE_TUN"] == "/dev/net/tun"
    assert json.loads(answer.envs["PODWIRE_DEVICE_TUN_INFO"]) == [{"id": "tun-1", "paths": ["/dev/net/tun"]}]


@pytest.mark.parametrize(
    ("ids", "code", "reported"),
    [
        pytest.param(["tun-9"], "FAILED_PRECONDITION", "tun-9: is not a device of the pool tun", id="unknown"),
        pytest.param(["tun-1", "tun-1"], "INVALID_ARGUMENT", "tun-1 is requested twice", id="twice"),
    ],
)
def test_unusable_device_is_refused_by_name(host, ids, code, reported):
    host.kubelet.start()
    host.start([TUN])
    host.kubelet.wait_registered()
    with pytest.raises(grpc.RpcError) as refused:
        host.kubelet.plugin("tun").allocate(*ids)
    assert refused.value.code().name == code
    assert reported in refused.value.details()


def test_device_file_that_disappears_and_returns_is_reported(host):
    path = host.root / "dev" / "thing"
    path.parent.mkdir()
    host.kubelet.start()
    host.start([{"name": "things", "files": {"paths": [str(path)]}}])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("things")
    plugin.until(things_0="Unhealthy")
    with pytest.raises(grpc.RpcError, match="No such file"):
        plugin.allocate("things-0")
    path.symlink_to("/dev/net/tun")
    plugin.until(things_0="Healthy")
    path.unlink()
    plugin.until(things_0="Unhealthy")


def test_link_is_restored_whatever_its_pod_did_to_it(host, nics):
    nics("nic0", "nic1")
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy", nic1="Healthy")
    before = host.dump("nic0")
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    pod = host.namespaces.create("pod").path
    host.move_in("nic0", pod)
    answer = plugin.allocate("nic0")
    assert answer.envs["PODWIRE_DEVICE_NICS"] == "nic0"
    assert json.loads(answer.envs["PODWIRE_DEVICE_NICS_INFO"]) == [
        {"id": "nic0", "name": "nic0", "mac": "02:00:00:00:00:01", "mtu": 1400}
    ]
    assert host.records("nics")["nic0"]["out"] is True
    host.inside(pod, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:99", "mtu", "1280", "txqueuelen", "5")
    host.inside(pod, "ip", "link", "set", "eth0", "promisc", "on", "up")
    host.inside(pod, "ip", "addr", "add", "10.77.0.1/24", "dev", "eth0")
    host.move_out(pod, "eth0", "whatever")
    as_before(host, "nic0", before)
    del host.kubelet.pods["web"]
    eventually(lambda: host.records("nics")["nic0"]["out"] is False)
    assert host.dump("nic0") == before


def test_link_that_was_not_moved_is_restored_when_its_pod_is_gone(host, nics):
    nics("nic0")
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    before = host.dump("nic0")
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    plugin.allocate("nic0")
    host.ip("link set nic0 mtu 1300")
    host.ip("addr flush dev nic0")
    host.kubelet.wait_until_asked()
    assert host.ip("link show nic0")[0]["mtu"] == 1300
    del host.kubelet.pods["web"]
    as_before(host, "nic0", before)


def test_change_of_a_free_link_by_an_administrator_is_kept(host, nics):
    nics("nic0")
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    host.kubelet.plugin("nics").until(nic0="Healthy")
    host.ip("link set nic0 mtu 1444")
    host.ip("addr add 10.9.1.77/24 dev nic0")
    eventually(lambda: host.records("nics")["nic0"]["snapshot"]["attributes"]["mtu"] == 1444)
    eventually(lambda: "0a09014d" in json.dumps(host.records("nics")))  # 10.9.1.77
    before = host.dump("nic0")
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    pod = host.namespaces.create("pod").path
    host.move_in("nic0", pod)
    eventually(lambda: host.records("nics")["nic0"]["out"])
    host.move_out(pod, "eth0", "nic0")
    as_before(host, "nic0", before)


def test_carrier_and_deletion_of_a_free_link_are_reported(host, nics):
    nics("nic0", "nic1")
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy", nic1="Healthy")
    host.ip("link set far1 down")
    plugin.until(nic0="Unhealthy", nic1="Healthy")
    host.ip("link set far1 up")
    plugin.until(nic0="Healthy", nic1="Healthy")
    host.ip("link del nic0")
    plugin.until(nic0="Unhealthy", nic1="Healthy")
    with pytest.raises(grpc.RpcError, match="nic0: nic0 was deleted"):
        plugin.allocate("nic0")
    nics("nic0")
    plugin.until(nic0="Healthy", nic1="Healthy")


def test_carrier_and_deletion_of_a_link_in_a_pod_are_reported(host, nics):
    nics("nic0", "nic1")
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy", nic1="Healthy")
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    pod = host.namespaces.create("pod").path
    host.move_in("nic0", pod)
    plugin.allocate("nic0")
    host.inside(pod, "ip", "link", "set", "eth0", "up")
    host.ip("link set far1 down")
    plugin.until(nic0="Unhealthy", nic1="Healthy")
    host.ip("link set far1 up")
    plugin.until(nic0="Healthy", nic1="Healthy")
    host.inside(pod, "ip", "link", "del", "eth0")
    plugin.until(nic0="Unhealthy", nic1="Healthy")


def test_link_elsewhere_without_a_pod_is_not_offered(host, nics):
    nics("nic0")
    host.kubelet.start()
    host.start([NICS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    pod = host.namespaces.create("elsewhere").path
    host.move_in("nic0", pod)
    plugin.until(nic0="Unhealthy")
    host.move_out(pod, "eth0", "nic0")
    plugin.until(nic0="Healthy")


def test_links_that_the_host_needs_are_left_out(host, nics):
    nics("nic0", "nic1", "nic2")
    host.ip("link add br0 up type bridge")
    host.ip("link set nic1 master br0")
    host.ip("route add default via 10.9.3.254 dev nic2")
    host.kubelet.start()
    host.start([NICS, {"name": "more", "interfaces": {"names": ["nic0", "far*"]}}])
    host.kubelet.wait_registered()
    assert sorted(host.kubelet.plugin("nics").until(nic0="Healthy")) == ["nic0"]
    assert sorted(host.kubelet.plugin("more").until(far1="Healthy")) == ["far1", "far2", "far3"]
    log = host.log.read_text()
    assert 'link=nic1  error="it is a port of another link"' in log
    assert 'link=nic2  error="the host\'s default route goes through it"' in log
    assert 'pool=more  link=nic0  error="it belongs to the pool nics"' in log


@pytest.mark.parametrize("pool", [VETHS, MACVLANS, TAPS], ids=lambda each: each["make"]["kind"])
def test_made_links_are_replaced_when_they_return(host, nics, pool):
    host.ip("link add br0 up type bridge")
    nics("up0")
    make = pool["make"]
    name, other = f"{make['prefix']}0", f"{make['prefix']}1"
    healthy = {name: "Healthy", other: "Healthy"}
    host.kubelet.start()
    host.start([pool])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin(pool["name"])
    plugin.until(**healthy)
    first = host.ip(f"link show {name}")[0]
    assert first["ifalias"] == f"podwire-device:{pool['name']}"
    assert first["linkinfo"]["info_kind"] == {"tap": "tun"}.get(make["kind"], make["kind"])
    assert first["mtu"] == make.get("mtu", 1500)
    host.kubelet.pods["web"] = {f"net.podwire.dev/{pool['name']}": [name]}
    pod = host.namespaces.create("pod").path
    host.move_in(name, pod)
    answer = plugin.allocate(name)
    assert answer.envs[f"PODWIRE_DEVICE_{pool['name'].upper()}"] == name
    assert [device.host_path for device in answer.devices] == (["/dev/net/tun"] if make["kind"] == "tap" else [])
    host.move_out(pod, "eth0", name)

    def anew():
        found = [item for item in host.ip("link show") if item["ifname"] == name]
        return found and found[0]["ifindex"] != first["ifindex"] and found[0].get("ifalias") == first["ifalias"]

    eventually(anew)
    assert host.stop() == 0
    left = {item["ifname"] for item in host.ip("link show")}
    assert other not in left


def test_made_link_that_ended_with_its_pod_is_replaced_when_the_pod_is_gone(host):
    host.ip("link add br0 up type bridge")
    host.kubelet.start()
    host.start([VETHS])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("veths")
    plugin.until(pv0="Healthy", pv1="Healthy")
    host.kubelet.pods["web"] = {"net.podwire.dev/veths": ["pv0"]}
    pod = host.namespaces.create("pod").path
    host.move_in("pv0", pod)
    plugin.allocate("pv0")
    host.inside(pod, "ip", "link", "del", "eth0")
    plugin.until(pv0="Unhealthy", pv1="Healthy")
    host.kubelet.wait_until_asked()
    assert "pv0" not in {item["ifname"] for item in host.ip("link show")}
    del host.kubelet.pods["web"]
    plugin.until(pv0="Healthy", pv1="Healthy")


def test_a_parent_that_goes_takes_the_health_of_its_links_along(host, nics):
    nics("up0")
    host.kubelet.start()
    host.start([MACVLANS, VETHS])
    host.kubelet.wait_registered()
    vlans, veths = host.kubelet.plugin("vlans"), host.kubelet.plugin("veths")
    vlans.until(mv0="Healthy", mv1="Healthy")
    veths.until(pv0="Unhealthy", pv1="Unhealthy")
    host.ip("link add br0 up type bridge")
    veths.until(pv0="Healthy", pv1="Healthy")
    host.ip("link set far1 down")
    vlans.until(mv0="Unhealthy", mv1="Unhealthy")
    host.ip("link set far1 up")
    vlans.until(mv0="Healthy", mv1="Healthy")
    host.ip("link del up0")
    vlans.until(mv0="Unhealthy", mv1="Unhealthy")
    nics("up0")
    vlans.until(mv0="Healthy", mv1="Healthy")


def test_plugin_registers_with_a_restarted_kubelet_at_once(host):
    host.start([TUN])
    host.kubelet.start()
    host.kubelet.wait_registered()
    for _ in range(3):
        host.kubelet.stop()
        host.kubelet.start()
        host.kubelet.wait_registered()
        assert len(host.kubelet.plugin("tun").next()) == 3


def test_removed_socket_is_created_again_and_registered(host):
    host.kubelet.start()
    host.start([TUN])
    host.kubelet.wait_registered()
    (host.kubelet.plugins / "podwire-tun.sock").unlink()
    host.kubelet.wait_registered()
    assert len(host.kubelet.plugin("tun").next()) == 3


def test_refused_registration_is_logged_and_retried(host):
    host.kubelet.refusal = "not today"
    host.kubelet.start()
    host.start([TUN])
    eventually(lambda: "not today" in host.log.read_text())
    host.kubelet.refusal = ""
    host.kubelet.wait_registered()


def test_cdi_file_exists_while_a_pod_has_the_device(host, nics):
    nics("nic0")
    host.kubelet.start()
    host.start([TUN | {"cdi": True}, NICS | {"cdi": True}])
    host.kubelet.wait_registered()
    host.kubelet.wait_registered()
    host.kubelet.plugin("nics").until(nic0="Healthy")
    host.kubelet.pods["web"] = {NIC: ["nic0"], "net.podwire.dev/tun": ["tun-0"]}
    tun, nic = host.kubelet.plugin("tun").allocate("tun-0"), host.kubelet.plugin("nics").allocate("nic0")
    assert [device.name for device in tun.cdi_devices] == ["net.podwire.dev/tun=tun-0"]
    assert [device.name for device in nic.cdi_devices] == ["net.podwire.dev/nics=nic0"]
    assert not tun.devices
    specs = {json.loads(path.read_text())["kind"]: json.loads(path.read_text()) for path in host.cdi.iterdir()}
    assert specs["net.podwire.dev/tun"] == {
        "cdiVersion": "0.5.0",
        "kind": "net.podwire.dev/tun",
        "devices": [
            {
                "name": "tun-0",
                "containerEdits": {"deviceNodes": [{"path": "/dev/net/tun", "permissions": "rw"}]},
            }
        ],
    }
    assert specs["net.podwire.dev/nics"]["cdiVersion"] == "1.1.0"
    assert specs["net.podwire.dev/nics"]["devices"][0]["containerEdits"] == {
        "netDevices": [{"hostInterfaceName": "nic0", "name": "nic0"}]
    }
    host.kubelet.wait_until_asked()
    assert len(list(host.cdi.iterdir())) == 2
    host.kubelet.pods.clear()
    eventually(lambda: not list(host.cdi.iterdir()))


def edits(host):
    """The container edits of the only CDI file."""
    [file] = host.cdi.iterdir()
    return json.loads(file.read_text())["devices"][0]["containerEdits"]


def allocated_by_cdi(host, nics):
    nics("nic0")
    host.kubelet.start()
    host.start([NICS | {"cdi": True}])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    plugin.allocate("nic0")
    return plugin


def test_cdi_file_of_a_link_that_is_in_the_pod_checks_it_instead_of_moving_it(host, nics):
    """A container that restarts gets the same CDI device, without another Allocate."""
    allocated_by_cdi(host, nics)
    pod = host.namespaces.create("pod").path
    host.move_in("nic0", pod, "nic0")
    eventually(lambda: "netDevices" not in edits(host))
    [hook] = edits(host)["hooks"]
    assert hook["args"] == [f"{host.state}/bin/podwire-device-in-pod", "has-link", "nic0"]
    state = f'{{"pid": {os.getpid()}}}'
    inside = ["nsenter", f"--net={pod}", "sh", "-c", f'echo "{{\\"pid\\": $$}}" | {" ".join(hook["args"])}']
    assert subprocess.run(inside, check=False, timeout=60).returncode == 0
    assert subprocess.run(hook["args"], input=state, text=True, check=False, timeout=60).returncode == 1
    host.move_out(pod, "nic0", "nic0")
    eventually(lambda: "netDevices" in edits(host))


def test_virtual_link_that_ended_with_its_pod_is_unhealthy_at_once(host, nics):
    plugin = allocated_by_cdi(host, nics)
    pod = host.namespaces.create("pod").path
    host.move_in("nic0", pod, "nic0")
    eventually(lambda: "hooks" in edits(host))
    host.namespaces.remove("pod")
    plugin.until(nic0="Unhealthy")
    with pytest.raises(grpc.RpcError, match="nic0 was deleted"):
        plugin.allocate("nic0")


def test_devices_of_pods_that_a_young_kubelet_does_not_report_yet_are_kept(host, nics):
    allocated_by_cdi(host, nics)
    host.kubelet.wait_until_asked()
    host.kubelet.stop()
    host.kubelet.pods.clear()
    host.kubelet.young = True
    host.kubelet.start()
    host.kubelet.wait_registered()
    host.kubelet.wait_until_asked()
    assert list(host.cdi.iterdir())
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    host.kubelet.wait_until_asked()
    host.kubelet.pods.clear()
    eventually(lambda: not list(host.cdi.iterdir()))


def test_hardware_is_known_by_its_pci_address_and_its_numa_node(host, nics, pci_tree):
    nics("nic0", "nic1", "nic2")
    sysfs = pci_tree({"nic0": ("0000:3b:02.0", 1), "nic1": ("0000:3b:02.1", 1), "nic2": ("0000:5e:00.0", 0)})
    host.kubelet.start()
    pools = [
        {"name": "vfs", "interfaces": {"pciAddresses": ["0000:3b:02.*"], "drivers": ["mlx5_core"], "numaNodes": [1]}}
    ]
    host.start(pools, "--sysfs", str(sysfs))
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("vfs")
    result = plugin.next()
    while any(item.health != "Healthy" for item in result.values()):
        result = plugin.next()
    assert {name: [node.ID for node in each.topology.nodes] for name, each in result.items()} == {
        "0000:3b:02.0": [1],
        "0000:3b:02.1": [1],
    }
    answer = plugin.allocate("0000:3b:02.1")
    assert answer.envs["PODWIRE_DEVICE_VFS"] == "0000:3b:02.1"
    [info] = json.loads(answer.envs["PODWIRE_DEVICE_VFS_INFO"])
    assert (info["name"], info["pciAddress"], info["numaNode"]) == ("nic1", "0000:3b:02.1", 1)


def test_a_kubelet_is_to_ask_which_devices_are_preferred_as_soon_as_that_matters(host, nics, pci_tree):
    nics("nic0", "nic1")
    sysfs = pci_tree({"nic0": ("0000:3b:02.0", 1), "nic1": ("0000:3b:02.1", 1), "nic2": ("0000:5e:00.0", 0)})
    host.kubelet.start()
    host.start([NICS], "--sysfs", str(sysfs))
    assert not host.kubelet.wait_registered().options.get_preferred_allocation_available
    host.ip("link add nic2 up type veth peer name far3")
    assert host.kubelet.wait_registered().options.get_preferred_allocation_available
    options = host.kubelet.plugin("nics").call("GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions)
    assert options.get_preferred_allocation_available


def test_nothing_is_handed_out_that_cannot_be_written_down(host, nics):
    nics("nic0")
    host.cdi.write_text("in the way")
    host.kubelet.start()
    host.start([NICS | {"cdi": True}])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    host.kubelet.pods["web"] = {NIC: ["nic0"]}
    with pytest.raises(grpc.RpcError) as refused:
        plugin.allocate("nic0")
    assert refused.value.code().name == "UNAVAILABLE"
    assert str(host.cdi) in refused.value.details()
    eventually(lambda: "cannot reconcile devices; retrying" in host.log.read_text())
    host.cdi.unlink()
    assert [device.name for device in plugin.allocate("nic0").cdi_devices] == ["net.podwire.dev/nics=nic0"]


def test_unusable_state_directory_is_reported_in_one_line(host):
    host.state.write_text("in the way")
    host.start([NICS])
    assert host.process.wait(60) == 1
    assert host.log.read_text().count("\n") == 1
    assert str(host.state) in host.log.read_text()
