"""macvlan, on the real kernel: pods on one wire, each with its own MAC address, and nothing left of them."""

import json
import signal
from ipaddress import ip_network

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.values import Route, Veth

all_ways = pytest.mark.parametrize("way", ["in process", "program", "daemon"])
DUAL = ("10.88.0.0/24", "fd88::/64")
ADDING = ["recorded", "leased", "made", "connected", "attached", "added"]
DELETING = ["detached", "released"]
MAC = "02:00:00:00:00:01"


@pytest.fixture
def wired():
    """A wire to stand on, to be called on the host of the test."""

    def make(name="wire0", netns=None):
        with KernelNetwork(netns) as network:
            network.links.add(Veth(name, f"{name}-far"))
            for item in (name, f"{name}-far"):
                network.links.change(network.links.get(item).ifindex, up=True)

    return make


def macvlan(host, *subnets, **keys):
    return host.config("macvlan", *(subnets or DUAL), **{"master": "wire0"} | keys)


@all_ways
def test_add_makes_everything_that_the_result_has(host, way, wired):
    wired()
    pod = host.pod("a")
    config = macvlan(host, mtu=1400, dns={"domain": "x"})
    config["ipam"]["routes"] = [{"dst": "10.9.0.0/16"}]
    result = host.add("a", config)
    eth0 = host.links(pod)["eth0"]
    assert (eth0.kind, eth0.mode, eth0.up, eth0.mtu) == ("macvlan", "bridge", True, 1400)
    assert eth0.peer == host.links()["wire0"].ifindex
    assert result == {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": eth0.mac, "sandbox": pod, "mtu": 1400}],
        "ips": [
            {"interface": 0, "address": "10.88.0.2/24", "gateway": "10.88.0.1"},
            {"interface": 0, "address": "fd88::2/64", "gateway": "fd88::1"},
        ],
        "routes": [{"dst": "10.9.0.0/16"}],
        "dns": {"domain": "x"},
    }
    with KernelNetwork(pod) as inside:
        [nine] = [route for route in inside.routes.list(4) if str(route.destination) == "10.9.0.0/16"]
    assert str(nine.gateway) == "10.88.0.1"
    assert KernelSysctls(pod).read("net.ipv4.conf.eth0.arp_notify") == "1"
    assert KernelSysctls(pod).read("net.ipv6.conf.eth0.ndisc_notify") == "1"
    host.check("a", config, result)
    host.delete("a", config)
    assert host.left() == {}
    assert list(host.links(pod)) == ["lo"]
    host.delete("a", config)


def test_pods_on_one_master_reach_each_other_unless_private(host, serving, seen, wired):
    wired()
    a, b = host.pod("a"), host.pod("b")
    for letter in "ab":
        host.add(letter, macvlan(host))
    with serving(b, 80) as server, serving(b, 86, 6) as server6:
        assert seen(server, a, "10.88.0.3", 80) == "10.88.0.2"
        assert seen(server6, a, "fd88::3", 86) == "fd88::2"
    wired("wire1")
    c, d = host.pod("c"), host.pod("d")
    for letter in "cd":
        host.add(letter, macvlan(host, master="wire1", mode="private"))
    with serving(d, 80) as server:
        assert seen(server, c, "10.88.0.5", 80) is None


@pytest.mark.parametrize("mode", ["bridge", "private", "vepa", "passthru"])
def test_every_mode_is_set_and_checked(host, refused, mode, wired):
    wired()
    pod = host.pod("a")
    config = macvlan(host, mode=mode, bcqueuelen=2000)
    result = host.add("a", config)
    assert host.links(pod)["eth0"].mode == mode
    host.check("a", config, result)
    other = "private" if mode == "bridge" else "bridge"
    with refused(101, f"the mode {mode}, expected {other}"):
        host.check("a", config | {"mode": other}, result)


@pytest.mark.parametrize("family", [4, 6])
def test_default_master_is_the_link_of_the_default_route(host, refused, family, wired):
    host.pod("a")
    wired("other0")
    wired("uplink0")
    with refused(7, "no default route"):
        host.add("a", macvlan(host, master=""))
    with KernelNetwork() as here:
        anywhere = ip_network("0.0.0.0/0" if family == 4 else "::/0")
        here.routes.add(Route(anywhere, ifindex=here.links.get("uplink0").ifindex))
    result = host.add("a", macvlan(host, master=""))
    assert host.links(host.namespaces.path("a"))["eth0"].peer == host.links()["uplink0"].ifindex
    host.check("a", macvlan(host, master=""), result)


@all_ways
def test_master_can_be_a_link_of_the_pod(host, way, wired):
    pod = host.pod("a")
    wired("wire0", pod)
    config = macvlan(host, linkInContainer=True)
    result = host.add("a", config)
    assert host.links(pod)["eth0"].peer == host.links(pod)["wire0"].ifindex
    host.check("a", config, result)
    assert host.add("a", config) == result
    host.delete("a", config, "")
    assert "eth0" not in host.links(pod)
    assert host.left() == {}


@pytest.mark.parametrize(
    ("keys", "env", "mac"),
    [
        pytest.param({"mac": MAC}, {}, MAC, id="key"),
        pytest.param({"mac": "02:00:00:00:00:09"}, {"CNI_ARGS": f"MAC={MAC}"}, MAC, id="CNI_ARGS"),
        pytest.param({"mac": "02:00:00:00:00:09", "runtimeConfig": {"Mac": MAC}}, {}, MAC, id="capability"),
    ],
)
def test_requested_mac_address_is_used(host, keys, env, mac, wired):
    wired()
    pod = host.pod("a")
    assert host.add("a", macvlan(host, **keys), **env)["interfaces"][0]["mac"] == mac == host.links(pod)["eth0"].mac


def test_without_ipam_the_link_is_up_without_addresses(host, wired):
    wired()
    pod = host.pod("a")
    config = macvlan(host, ipam={})
    result = host.add("a", config)
    assert result.keys() == {"cniVersion", "interfaces"}
    assert host.links(pod)["eth0"].up
    assert KernelSysctls(pod).read("net.ipv6.conf.eth0.accept_ra") == "1", "the wire's routers are listened to"
    host.check("a", config, result)
    host.delete("a", config)
    assert host.left() == {}


def test_repeated_add_returns_the_result_unless_the_configuration_differs(host, refused, wired):
    wired()
    pod = host.pod("a")
    first = host.add("a", macvlan(host))
    index = host.links(pod)["eth0"].ifindex
    assert host.add("a", macvlan(host)) == first
    assert host.links(pod)["eth0"].ifindex == index
    with refused(100, "another configuration"):
        host.add("a", macvlan(host, mtu=1300))
    host.check("a", macvlan(host), first)


def test_repeated_add_makes_a_missing_link_again(host, wired):
    wired()
    pod = host.pod("a")
    host.add("a", macvlan(host))
    with KernelNetwork(pod) as inside:
        inside.links.delete("eth0")
    host.check("a", macvlan(host), host.add("a", macvlan(host)))


def test_foreign_interface_is_not_touched(host, refused, wired):
    wired()
    pod = host.pod("a")
    wired("eth0", pod)
    index = host.links(pod)["eth0"].ifindex
    with refused(100, "eth0 already exists"):
        host.add("a", macvlan(host))
    host.delete("a", macvlan(host))
    assert host.links(pod)["eth0"].ifindex == index
    assert host.left() == {}


def test_interface_name_may_exist_on_the_host(host, wired):
    wired()
    wired("eth0")
    pod = host.pod("a")
    host.add("a", macvlan(host))
    assert host.links(pod)["eth0"].kind == "macvlan"


@pytest.mark.parametrize("how", ["the namespace is gone", "no namespace is named", "another is there now"])
def test_del_needs_no_namespace(host, how, wired):
    wired()
    pod = host.pod("a")
    host.add("a", macvlan(host))
    if how != "no namespace is named":
        host.namespaces.remove("a")
    if how == "another is there now":
        host.pod("a")
        wired("eth0", pod)
    host.delete("a", macvlan(host), "" if how == "no namespace is named" else None)
    assert host.left() == {}
    if how != "the namespace is gone":
        assert ("eth0" in host.links(pod)) == (how == "another is there now")


def test_del_needs_no_master(host, wired):
    wired()
    host.pod("a")
    host.add("a", macvlan(host))
    with KernelNetwork() as here:
        here.links.delete("wire0")
    host.delete("a", macvlan(host))
    assert host.left() == {}


def test_del_finds_a_renamed_link(host, wired):
    wired()
    pod = host.pod("a")
    host.add("a", macvlan(host))
    with KernelNetwork(pod) as inside:
        inside.links.change(inside.links.get("eth0").ifindex, up=False)
        inside.links.change(inside.links.get("eth0").ifindex, name="mine")
    host.delete("a", macvlan(host))
    assert list(host.links(pod)) == ["lo"]


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"master": "nobody0"}, 7, "link nobody0 does not exist", id="no master"),
        pytest.param({"master": "a/b"}, 7, "master", id="no name"),
        pytest.param({"mode": "loud"}, 7, "mode: 'loud'", id="no mode"),
        pytest.param({"mtu": -1}, 7, "mtu", id="negative mtu"),
        pytest.param({"mtu": 9000}, 7, "between 0 and 1500", id="more than its master's"),
        pytest.param({"mac": "02:00"}, 7, "mac", id="mac"),
        pytest.param({"bcqueuelen": -1}, 7, "bcqueuelen", id="queue"),
        pytest.param({"linkInContainer": True}, 7, "link wire0 does not exist", id="no master in the pod"),
        pytest.param({"linkInContainer": "yes"}, 6, "linkInContainer", id="no boolean"),
        pytest.param({"ipam": {"type": "absent"}}, 7, "absent is not in CNI_PATH", id="ipam that is not there"),
    ],
)
def test_unsupported_configuration_is_an_error_and_changes_nothing(host, refused, keys, code, reported, wired):
    wired()
    host.pod("a")
    with refused(code, reported):
        host.add("a", macvlan(host, **keys))
    assert host.left() == {}
    assert sorted(host.links()) == ["lo", "wire0", "wire0-far"]


@pytest.mark.parametrize("what", ["link", "down", "mac", "address", "master"])
def test_check_fails_for_each_change(host, refused, what, wired):
    wired()
    wired("wire1")
    pod = host.pod("a")
    config = macvlan(host, "10.88.0.0/24")
    result = host.add("a", config)
    with KernelNetwork(pod) as inside:
        eth0 = inside.links.get("eth0")
        match what:
            case "link":
                inside.links.delete("eth0")
            case "down":
                inside.links.change("eth0", up=False)
            case "mac":
                inside.links.change("eth0", mac=MAC)
            case "address":
                [own] = [
                    address.interface
                    for address in inside.addresses.list(eth0.ifindex)
                    if address.interface.version == 4
                ]
                inside.addresses.delete(eth0.ifindex, own)
            case "master":
                config |= {"master": "wire1"}
    document = {
        "link": "link eth0 does not exist",
        "down": "is down",
        "mac": "MAC",
        "address": "not have the address",
        "master": "stacked on wire1",
    }
    with refused(101, document[what]):
        host.check("a", config, result)


@all_ways
def test_gc_releases_only_invalid_attachments(host, way, wired):
    wired()
    config = macvlan(host)
    results = {}
    for letter in "abc":
        host.pod(letter)
        results[letter] = host.add(letter, config)
    host.namespaces.remove("c")
    kept = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth0"}]}
    assert host.call("GC", "", config | kept, "") is None
    assert "eth0" not in host.links(host.namespaces.path("a"))
    host.check("b", config, results["b"])
    assert [record.split("@")[1] for record in host.left()["records"]] == ["b"]
    assert host.call("GC", "", config | {"cni.dev/valid-attachments": []}, "") is None
    assert host.left() == {}


def test_status_fails_without_a_master(host, refused, wired):
    with refused(50, "link wire0 does not exist"):
        host.call("STATUS", "", macvlan(host), "")
    with refused(50, "no default route"):
        host.call("STATUS", "", macvlan(host, master=""), "")
    assert host.call("STATUS", "", macvlan(host, linkInContainer=True), "") is None
    wired()
    assert host.call("STATUS", "", macvlan(host), "") is None


@pytest.mark.parametrize("point", ADDING)
def test_del_removes_what_a_killed_add_left(host, point, wired):
    wired()
    pod = host.pod("a")
    assert host.died("ADD", macvlan(host), f"cni.macvlan-{point}")[0] == -signal.SIGKILL
    host.delete("a", macvlan(host), "")
    assert host.left() == {}
    assert list(host.links(pod)) == ["lo"]


@pytest.mark.parametrize("point", ["made", "connected"])
def test_repeated_add_succeeds_after_a_killed_add(host, point, wired):
    wired()
    host.pod("a")
    assert host.died("ADD", macvlan(host), f"cni.macvlan-{point}")[0] == -signal.SIGKILL
    host.check("a", macvlan(host), host.add("a", macvlan(host)))
    host.delete("a", macvlan(host))
    assert host.left() == {}


@pytest.mark.parametrize("point", ["recorded", "made", "attached"])
def test_failed_add_undoes_itself(host, point, wired):
    wired()
    pod = host.pod("a")
    code, stdout, _ = host.died("ADD", macvlan(host), f"cni.macvlan-{point}", "error(disk on fire)")
    assert (code, json.loads(stdout)["code"]) == (1, 999)
    assert host.left() == {}
    assert list(host.links(pod)) == ["lo"]


@pytest.mark.parametrize("point", DELETING)
def test_killed_del_is_completed_by_the_next(host, point, wired):
    wired()
    host.pod("a")
    host.add("a", macvlan(host))
    assert host.died("DEL", macvlan(host), f"cni.macvlan-{point}")[0] == -signal.SIGKILL
    host.delete("a", macvlan(host))
    assert host.left() == {}
