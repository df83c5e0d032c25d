"""host-device, on the real kernel: a link of the host goes to a pod and comes home, whatever happens on the way."""

import json
import signal
import subprocess
from ipaddress import ip_interface

import pytest

from podwire.cniplugins.host_device import settings as host_device_settings
from podwire.cniplugins.host_device.settings import links_in, parse_settings, select_link
from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bridge, Link, Veth
from podwire.protocols.cni.config import plugin_config
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.values import dumped
from tests.eventually import eventually

all_ways = pytest.mark.parametrize("way", ["in process", "program", "daemon"])
DUAL = ("10.88.0.0/24", "fd88::/64")
MAC = "02:00:00:00:00:07"
ADDING = ["recorded", "leased", "tagged", "connected", "attached", "added"]
DELETING = ["moved", "detached", "released"]


@pytest.fixture
def plugged():
    """A device to give away, to be called on the host of the test; the far end stays."""

    def make(name="dev0"):
        with KernelNetwork() as here:
            here.links.add(Veth(name, "far0", mac=MAC, alias="the left port"))
            for item in (name, "far0"):
                here.links.change(here.links.get(item).ifindex, up=True)

    return make


def device(host, *subnets, **keys):
    return host.config("host-device", *(subnets or DUAL), **{"device": "dev0"} | keys)


def is_home(host):
    dev0 = host.links().get("dev0")
    return dev0 is not None and (dev0.mac, dev0.alias, dev0.up) == (MAC, "the left port", True)


def left(host):
    """Without the device's own alias, which is not a mark."""
    found = host.left()
    found["links"] = [link for link in found.get("links", []) if link != "dev0"]
    return {key: value for key, value in found.items() if value}


@all_ways
def test_pod_gets_the_device_as_in_the_result(host, way, plugged):
    plugged()
    pod = host.pod("a")
    config = device(host, dns={"domain": "x"})
    config["ipam"]["routes"] = [{"dst": "10.9.0.0/16"}]
    result = host.add("a", config)
    eth0 = host.links(pod)["eth0"]
    assert (eth0.mac, eth0.up, "dev0" in host.links()) == (MAC, True, False)
    assert result == {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": MAC, "sandbox": pod, "mtu": 1500}],
        "ips": [
            {"interface": 0, "address": "10.88.0.2/24", "gateway": "10.88.0.1"},
            {"interface": 0, "address": "fd88::2/64", "gateway": "fd88::1"},
        ],
        "routes": [{"dst": "10.9.0.0/16"}],
        "dns": {"domain": "x"},
    }
    host.check("a", config, result)
    host.delete("a", config)
    assert is_home(host)
    assert left(host) == {}
    assert list(host.links(pod)) == ["lo"]
    host.delete("a", config)


def test_packets_pass_between_pod_and_peer(host, serving, seen, plugged):
    plugged()
    pod = host.pod("a")
    with KernelNetwork() as here:
        for name in ("10.88.0.1/24", "fd88::1/64"):
            here.addresses.add(here.links.get("far0").ifindex, ip_interface(name))
    host.add("a", device(host))
    with serving(pod, 80) as server, serving(pod, 86, 6) as server6:
        assert seen(server, None, "10.88.0.2", 80) == "10.88.0.1"
        assert seen(server6, None, "fd88::2", 86) == "fd88::1"


def test_device_that_was_down_is_restored_down(host, plugged):
    plugged()
    host.pod("a")
    with KernelNetwork() as here:
        here.links.change("dev0", up=False)
    host.add("a", device(host))
    host.delete("a", device(host))
    assert not host.links()["dev0"].up


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"hwaddr": MAC.upper()}, id="by its MAC address"),
        pytest.param({"kernelpath": "/sys/devices/virtual/"}, id="by its place in sysfs"),
    ],
)
def test_device_is_found_by_mac_address_or_sysfs_path(host, keys, plugged):
    plugged("aa0")
    syscalls.mount("sysfs", "/sys", "sysfs", 0, None)  # of this host: others show the links of others
    pod = host.pod("a")
    config = device(host, **keys)
    del config["device"]
    result = host.add("a", config)
    assert host.links(pod)["eth0"].mac == MAC
    host.check("a", config, result)
    host.delete("a", config)
    assert "aa0" in host.links()


def link(name, mac=""):
    return Link(1, name, "", mac, 1500, False, "down")


def test_device_is_found_by_its_bus_address(tmp_path, monkeypatch):
    pci, auxiliary = tmp_path / "pci", tmp_path / "auxiliary"
    monkeypatch.setattr(host_device_settings, "BUSES", {"pciBusID": str(pci), "deviceID": str(auxiliary)})
    (pci / "0000:01:00.0" / "net" / "ens1").mkdir(parents=True)
    (pci / "0000:02:00.0" / "virtio3" / "net" / "ens2").mkdir(parents=True)
    (auxiliary / "mlx5_core.sf.4" / "net" / "ens3").mkdir(parents=True)
    (tmp_path / "drivers" / "vfio-pci").mkdir(parents=True)
    (pci / "0000:03:00.0").mkdir()
    (pci / "0000:03:00.0" / "driver").symlink_to(tmp_path / "drivers" / "vfio-pci")

    def found(**keys):
        settings = parse_settings(plugin_config(dumped({"cniVersion": "1.1.0", "name": "net", **keys})))
        which = select_link(settings, [link("lo"), link("ens1"), link("ens2"), link("ens3")])
        return which and which.name

    assert found(pciBusID="0000:01:00.0") == "ens1"
    assert found(pciBusID="0000:02:00.0") == "ens2"
    assert found(pciBusID="0000:01:00.0", runtimeConfig={"deviceID": "mlx5_core.sf.4"}) == "ens3"
    assert found(pciBusID="0000:01:00.0", runtimeConfig={"deviceID": "ens2"}) == "ens2"
    assert found(runtimeConfig={"DeviceID": "0000:02:00.0"}) == "ens2"
    assert found(device="lo", pciBusID="0000:01:00.0") == "lo"
    with pytest.raises(CniError, match="driven by vfio-pci"):
        found(pciBusID="0000:03:00.0")
    with pytest.raises(CniError, match=r"pciBusID: device 0000:09:00\.0 does not exist"):
        found(pciBusID="0000:09:00.0")
    assert links_in(str(tmp_path / "nowhere")) == []


def test_repeated_add_returns_the_result_unless_the_configuration_differs(host, refused, plugged):
    plugged()
    host.pod("a")
    first = host.add("a", device(host))
    assert host.add("a", device(host)) == first
    with refused(100, "another configuration"):
        host.add("a", device(host, dns={"domain": "y"}))
    host.check("a", device(host), first)


def test_device_belongs_to_one_pod(host, refused, plugged):
    plugged()
    for letter in "ab":
        host.pod(letter)
    first = host.add("a", device(host))
    with refused(7, "dev0 does not exist"):
        host.add("b", device(host))
    host.check("a", device(host), first)
    host.delete("a", device(host))
    host.add("b", device(host))


def test_link_of_another_plugin_is_in_use(host, refused):
    for letter in "ab":
        host.pod(letter)
    result = host.add("a", host.bridge())
    with refused(100, "belongs to net/a/eth0"):
        host.add("b", device(host, name="other", device=result["interfaces"][1]["name"]))
    host.check("a", host.bridge(), result)


def test_foreign_interface_is_not_touched(host, refused, plugged):
    plugged()
    pod = host.pod("a")
    with KernelNetwork(pod) as inside:
        inside.links.add(Veth("eth0", "other"))
    index = host.links(pod)["eth0"].ifindex
    with refused(100, "eth0 already exists"):
        host.add("a", device(host))
    assert is_home(host)
    host.delete("a", device(host))
    assert host.links(pod)["eth0"].ifindex == index
    assert left(host) == {}


def test_device_stays_on_the_host_without_a_free_address(host, refused, plugged):
    plugged()
    host.pod("a")
    config = device(host, "10.88.0.0/30")
    host.pod("b")
    host.add("b", config | {"type": "host-local"}, plugin="host-local")
    with refused(11, "no IP addresses available"):
        host.add("a", config)
    assert is_home(host)


@pytest.mark.parametrize("how", ["no namespace is named", "another is there now"])
def test_del_needs_no_namespace(host, how, plugged):
    plugged()
    pod = host.pod("a")
    host.add("a", device(host))
    if how == "another is there now":
        # The first is still pinned elsewhere, where a runtime keeps it.
        elsewhere = host.root / "netns" / "elsewhere"
        elsewhere.touch()
        syscalls.mount(pod, str(elsewhere), None, 4096, None)
        host.namespaces.remove("a")
        host.pod("a")
        with KernelNetwork(pod) as inside:
            inside.links.add(Veth("eth0", "other"))
        host.delete("a", device(host))
        assert "eth0" in host.links(pod)
        host.namespaces.remove("elsewhere")
    else:
        host.delete("a", device(host), "")
        assert is_home(host)
    assert left(host) == {}


def test_del_succeeds_after_a_virtual_device_ended_with_its_namespace(host, plugged):
    plugged()
    host.pod("a")
    host.add("a", device(host))
    host.namespaces.remove("a")
    eventually(lambda: "far0" not in host.links())  # a pair is not hardware: the kernel brings only that home
    host.delete("a", device(host))
    assert left(host) == {}


def test_device_that_the_kernel_returned_gets_its_name_back(host, plugged):
    plugged()
    pod = host.pod("a")
    host.add("a", device(host))
    with KernelNetwork(pod) as inside:
        inside.links.move("eth0", "/proc/thread-self/ns/net", "dev77")  # as it does with hardware
    host.namespaces.remove("a")
    host.delete("a", device(host))
    assert is_home(host)
    assert left(host) == {}


def test_device_that_the_pod_renamed_is_restored(host, plugged):
    plugged()
    pod = host.pod("a")
    host.add("a", device(host))
    with KernelNetwork(pod) as inside:
        inside.links.change("eth0", up=False)
        inside.links.change(inside.links.get("eth0").ifindex, name="mine")
    host.delete("a", device(host))
    assert is_home(host)


def test_taken_name_is_an_error_and_del_can_be_repeated(host, refused, plugged):
    plugged()
    pod = host.pod("a")
    host.add("a", device(host))
    with KernelNetwork() as here:
        here.links.add(Bridge("dev0"))
        with refused(100, "dev0: another link has this name, so the device is called home"):
            host.delete("a", device(host))
        assert list(host.links(pod)) == ["lo"]
        host.namespaces.remove("a")
        here.links.delete("dev0")
    host.delete("a", device(host))
    assert is_home(host)
    assert left(host) == {}


def test_without_ipam_the_device_has_no_addresses(host, plugged):
    plugged()
    pod = host.pod("a")
    config = device(host, ipam={})
    result = host.add("a", config)
    assert result.keys() == {"cniVersion", "interfaces"}
    assert host.links(pod)["eth0"].up
    host.check("a", config, result)
    host.delete("a", config)
    assert is_home(host)


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"device": ""}, 7, 'specify either "device"', id="none"),
        pytest.param({"device": "nobody0"}, 7, "nobody0 does not exist", id="not there"),
        pytest.param({"device": "a/b"}, 7, "device", id="no name"),
        pytest.param({"device": "", "hwaddr": "02:00"}, 7, "hwaddr", id="no MAC address"),
        pytest.param({"device": "", "kernelpath": "/etc"}, 7, "not below /sys/devices/", id="no path in sysfs"),
        pytest.param(
            {"device": "", "kernelpath": "/sys/devices/../../etc"}, 7, "not below", id="a path that leads out"
        ),
        pytest.param({"device": "", "pciBusID": "../x"}, 7, "is not a device address", id="no address"),
        pytest.param(
            {"device": "", "pciBusID": "ffff:ff:1f.7"}, 7, "device ffff:ff:1f.7 does not exist", id="no PCI device"
        ),
        pytest.param(
            {"device": "", "runtimeConfig": {"deviceID": "0000:1"}}, 7, "device 0000:1 does not exist", id="no deviceID"
        ),
        pytest.param({"device": "lo"}, 102, "move link", id="the loopback"),
        pytest.param({"useInterfaceNetwork": True}, 2, "useInterfaceNetwork", id="its own network"),
        pytest.param({"ipam": {"type": "absent"}}, 7, "absent is not in CNI_PATH", id="ipam that is not there"),
    ],
)
def test_unsupported_configuration_is_an_error_and_changes_nothing(host, refused, keys, code, reported, plugged):
    plugged()
    host.pod("a")
    with refused(code, reported):
        host.add("a", device(host, **keys))
    assert is_home(host)
    assert left(host) == {}


@pytest.mark.parametrize("what", ["link", "down", "mac", "address", "exchanged"])
def test_check_fails_for_each_change(host, refused, what, plugged):
    plugged()
    pod = host.pod("a")
    config = device(host, "10.88.0.0/24")
    result = host.add("a", config)
    with KernelNetwork(pod) as inside:
        eth0 = inside.links.get("eth0")
        match what:
            case "link":
                inside.links.delete("eth0")
            case "down":
                inside.links.change("eth0", up=False)
            case "mac":
                inside.links.change("eth0", mac="02:00:00:00:00:09")
            case "address":
                [own] = [
                    address.interface
                    for address in inside.addresses.list(eth0.ifindex)
                    if address.interface.version == 4
                ]
                inside.addresses.delete(eth0.ifindex, own)
            case "exchanged":
                inside.links.change("eth0", alias="")
    document = {
        "link": "link eth0 does not exist",
        "down": "down",
        "mac": "MAC",
        "address": "not have the address",
        "exchanged": "not the device dev0",
    }
    with refused(101, document[what]):
        host.check("a", config, result)


@all_ways
def test_gc_restores_devices(host, way, plugged):
    plugged()
    host.pod("a")
    config = device(host)
    result = host.add("a", config)
    kept = {"cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]}
    assert host.call("GC", "", config | kept, "") is None
    host.check("a", config, result)
    assert host.call("GC", "", config | {"cni.dev/valid-attachments": []}, "") is None
    assert is_home(host)
    assert left(host) == {}


def test_status_fails_without_the_device(host, refused, plugged):
    with refused(50, "dev0 does not exist"):
        host.call("STATUS", "", device(host), "")
    plugged()
    assert host.call("STATUS", "", device(host), "") is None
    host.pod("a")
    host.add("a", device(host))
    assert host.call("STATUS", "", device(host), "") is None, "it is where it should be"


@pytest.mark.parametrize("point", ADDING)
def test_del_restores_the_device_after_a_killed_add(host, point, plugged):
    plugged()
    host.pod("a")
    assert host.died("ADD", device(host), f"cni.host-device-{point}")[0] == -signal.SIGKILL
    host.delete("a", device(host), "")
    assert is_home(host)
    assert left(host) == {}


@pytest.mark.parametrize("point", ["tagged", "connected"])
def test_add_succeeds_after_a_killed_add(host, point, plugged):
    plugged()
    host.pod("a")
    assert host.died("ADD", device(host), f"cni.host-device-{point}")[0] == -signal.SIGKILL
    host.check("a", device(host), host.add("a", device(host)))
    host.delete("a", device(host))
    assert is_home(host)


@pytest.mark.parametrize("point", ["recorded", "tagged", "attached"])
def test_failed_add_undoes_itself(host, point, plugged):
    plugged()
    host.pod("a")
    code, stdout, _ = host.died("ADD", device(host), f"cni.host-device-{point}", "error(disk on fire)")
    assert (code, json.loads(stdout)["code"]) == (1, 999)
    assert is_home(host)
    assert left(host) == {}


@pytest.mark.parametrize("point", DELETING)
def test_killed_del_is_completed_by_the_next(host, point, plugged):
    plugged()
    host.pod("a")
    host.add("a", device(host))
    assert host.died("DEL", device(host), f"cni.host-device-{point}")[0] == -signal.SIGKILL
    host.delete("a", device(host))
    assert is_home(host)
    assert left(host) == {}


def test_del_restores_the_device_after_a_killed_daemon(host, plugged):
    plugged()
    host.pod("a")
    with host.daemon_process(PODWIRE_FAILPOINTS="cni.host-device-connected=kill") as daemon:
        result = host.run("ADD", "a", device(host)).communicate(timeout=60)[0]
        assert json.loads(result)["code"] == 11
        assert daemon.wait(60) == -signal.SIGKILL
    assert subprocess.run(["ip", "link", "show", "dev0"], capture_output=True, check=False).returncode != 0
    host.delete("a", device(host))
    assert is_home(host)
    assert left(host) == {}


def test_device_gets_its_addresses_routes_and_attributes_back(host, plugged):
    plugged()
    pod = host.pod("a")
    with KernelNetwork() as here:
        index = here.links.get("dev0").ifindex
        here.links.change(index, mtu=1400)
        here.addresses.add(index, ip_interface("192.0.2.7/24"))
    host.add("a", device(host))
    with KernelNetwork(pod) as inside:
        inside.links.change("eth0", mtu=1300)
    host.delete("a", device(host))
    with KernelNetwork() as here:
        link = here.links.get("dev0")
        addresses = {str(address.interface) for address in here.addresses.list(link.ifindex)}
    assert (link.mtu, link.mac, link.up) == (1400, MAC, True)
    assert "192.0.2.7/24" in addresses


def test_record_of_an_older_version_restores_name_alias_and_state(host, plugged):
    plugged()
    host.pod("a")
    host.add("a", device(host))
    [path] = host.records.glob("host-device/net@*")
    record = json.loads(path.read_text())
    record["before"] = {"alias": record["before"]["attributes"]["alias"], "up": record["before"]["attributes"]["up"]}
    path.write_text(json.dumps(record))
    host.delete("a", device(host))
    assert is_home(host)
    assert left(host) == {}
