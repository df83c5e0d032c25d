"""ptp, on the real kernel: what a pod and the host get, that packets pass, and that nothing is left."""

import json
import signal

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.values import Veth

all_ways = pytest.mark.parametrize("way", ["in process", "program", "daemon"])
DUAL = ("10.88.0.0/24", "fd88::/64")
ADDING = ["recorded", "leased", "connected", "attached", "added"]
DELETING = ["unmasqueraded", "detached", "released"]


def ptp(host, *subnets, **keys):
    result = host.config("ptp", *(subnets or DUAL), **keys)
    result["ipam"] |= {"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    return result


def routes(network, family):
    links = {link.ifindex: link.name for link in network.links.list()}
    return {
        (str(route.destination), str(route.gateway), links.get(route.ifindex, ""), str(route.source))
        for route in network.routes.list(family)
        if not route.destination.is_link_local and not route.destination.is_multicast
    }


@all_ways
def test_add_makes_both_ends_as_in_the_result(host, way):
    pod = host.pod("a")
    result = host.add("a", ptp(host, mtu=1400))
    outside, inside = result["interfaces"]
    name = outside["name"]
    with KernelNetwork() as here, KernelNetwork(pod) as there:
        near, far = here.links.get(name), there.links.get("eth0")
        assert (near.up, near.mtu, near.mac, near.master) == (True, 1400, outside["mac"], 0)
        assert inside == {"name": "eth0", "mac": far.mac, "sandbox": pod, "mtu": 1400}
        gateways = {
            str(address.interface)
            for address in here.addresses.list(near.ifindex)
            if not address.interface.is_link_local
        }
        assert gateways == {"10.88.0.1/32", "fd88::1/128"}
        assert ("10.88.0.2/32", "None", name, "None") in routes(here, 4)
        assert ("fd88::2/128", "None", name, "None") in routes(here, 6)
        assert routes(there, 4) == {
            ("10.88.0.1/32", "None", "eth0", "10.88.0.2"),
            ("10.88.0.0/24", "10.88.0.1", "eth0", "10.88.0.2"),
            ("0.0.0.0/0", "10.88.0.1", "eth0", "None"),
        }
        assert {route[:2] for route in routes(there, 6)} == {
            ("fd88::1/128", "None"),
            ("fd88::/64", "fd88::1"),
            ("::/0", "fd88::1"),
        }
        has = {str(address.interface): address.tentative for address in there.addresses.list(far.ifindex)}
        assert (has["10.88.0.2/24"], has["fd88::2/64"]) == (False, False)
    assert result["ips"] == [
        {"interface": 1, "address": "10.88.0.2/24", "gateway": "10.88.0.1"},
        {"interface": 1, "address": "fd88::2/64", "gateway": "fd88::1"},
    ]
    assert result["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    host.check("a", ptp(host, mtu=1400), result)


@all_ways
def test_del_leaves_nothing(host, way):
    host.pod("a")
    config = ptp(host, ipMasq=True)
    host.add("a", config)
    assert set(host.left()) == {"links", "leases", "records", "elements"}
    host.delete("a", config)
    assert host.left() == {}
    with KernelNetwork() as here:
        assert [link.name for link in here.links.list()] == ["lo"]
    host.delete("a", config)


def test_the_host_and_pods_reach_each_other_at_once(host, serving, seen):
    a, b = host.pod("a"), host.pod("b")
    for letter in "ab":
        host.add(letter, ptp(host))
    with serving(b, 80) as server, serving(b, 86, 6) as server6:
        assert seen(server, None, "10.88.0.3", 80) == "10.88.0.1"
        assert seen(server6, None, "fd88::3", 86) == "fd88::1"
        assert seen(server, a, "10.88.0.3", 80) == "10.88.0.2"
        assert seen(server6, a, "fd88::3", 86) == "fd88::2"
    with serving(None, 80) as server, serving(None, 86, 6) as server6:
        assert seen(server, a, "10.88.0.1", 80) == "10.88.0.2"
        assert seen(server6, a, "fd88::1", 86) == "fd88::2"


def test_traffic_is_masqueraded_with_ip_masq(host, serving, seen):
    a = host.pod("a")
    host.add("a", ptp(host, ipMasq=True))
    with host.outside() as outside, serving(outside, 80) as server, serving(outside, 86, 6) as server6:
        assert seen(server, a, "192.0.2.2", 80) == "192.0.2.1"
        assert seen(server6, a, "2001:db8::2", 86) == "2001:db8::1"
        host.delete("a", ptp(host, ipMasq=True))
        host.add("a", ptp(host))
        assert seen(server, a, "192.0.2.2", 80) is None


def test_the_host_forwards(host):
    host.pod("a")
    sysctls = KernelSysctls()
    sysctls.write("net.ipv4.ip_forward", "0")
    host.add("a", ptp(host))
    assert sysctls.read("net.ipv4.ip_forward") == sysctls.read("net.ipv6.conf.all.forwarding") == "1"


def test_gateway_of_a_route_can_be_in_the_pods_network(host):
    pod = host.pod("a")
    config = ptp(host)
    config["ipam"]["routes"] = [{"dst": "10.9.0.0/16", "gw": "10.88.0.77"}]
    host.add("a", config)
    with KernelNetwork(pod) as there:
        assert ("10.9.0.0/16", "10.88.0.77", "eth0", "None") in routes(there, 4)


def test_single_address_network_uses_its_gateway(host, serving, seen):
    pod = host.pod("a")
    addresses = [{"address": "10.77.0.5/32", "gateway": "10.66.0.1"}, {"address": "fd77::5/128", "gateway": "fd66::1"}]
    config = ptp(
        host, ipam={"type": "static", "addresses": addresses, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    )
    result = host.add("a", config)
    host.check("a", config, result)
    with serving(pod, 80) as server, serving(pod, 86, 6) as server6:
        assert seen(server, None, "10.77.0.5", 80) == "10.66.0.1"
        assert seen(server6, None, "fd77::5", 86) == "fd66::1"
    host.delete("a", config)
    assert host.left() == {}


def test_repeated_add_returns_the_result_unless_the_configuration_differs(host, refused):
    host.pod("a")
    first = host.add("a", ptp(host, ipMasq=True))
    before = host.left()
    assert host.add("a", ptp(host, ipMasq=True)) == first
    assert host.left() == before
    with refused(100, "another configuration"):
        host.add("a", ptp(host, mtu=1300))
    host.check("a", ptp(host, ipMasq=True), first)


def test_foreign_interface_is_not_touched(host, refused):
    pod = host.pod("a")
    with KernelNetwork(pod) as inside:
        inside.links.add(Veth("eth0", "other"))
        index = inside.links.get("eth0").ifindex
        with refused(100, "eth0 already exists"):
            host.add("a", ptp(host))
        host.delete("a", ptp(host))
        assert inside.links.get("eth0").ifindex == index
    assert host.left() == {}


def test_address_of_another_pod_is_an_error(host, refused):
    for letter in "ab":
        host.pod(letter)
    ipam = {"type": "static", "addresses": [{"address": "10.77.0.5/24", "gateway": "10.77.0.1"}]}
    first = host.add("a", ptp(host, ipam=ipam))
    with refused(102, "10.77.0.5/32"):
        host.add("b", ptp(host, ipam=ipam))
    host.check("a", ptp(host, ipam=ipam), first)


@pytest.mark.parametrize("how", ["the namespace is gone", "no namespace is named", "another is there now"])
def test_del_needs_no_namespace(host, how):
    pod = host.pod("a")
    config = ptp(host, ipMasq=True)
    host.add("a", config)
    if how != "no namespace is named":
        host.namespaces.remove("a")
    if how == "another is there now":
        host.pod("a")
        with KernelNetwork(pod) as inside:
            inside.links.add(Veth("eth0", "other"))
    host.delete("a", config | {"prevResult": "junk"}, "" if how == "no namespace is named" else None)
    assert host.left() == {}
    if how == "another is there now":
        with KernelNetwork(pod) as inside:
            inside.links.get("eth0")


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"ipMasqBackend": "ebpf"}, 2, "ipMasqBackend", id="backend"),
        pytest.param({"mtu": -1}, 7, "mtu", id="negative mtu"),
        pytest.param({"mtu": 20}, 102, "veth", id="an mtu that the kernel does not take"),
        pytest.param({"ipam": {}}, 7, "ipam.type", id="no ipam"),
        pytest.param({"ipam": {"type": "absent"}}, 7, "absent is not in CNI_PATH", id="ipam that is not there"),
        pytest.param(
            {"ipam": {"type": "static", "addresses": [{"address": "10.1.1.1/24"}]}},
            7,
            "without a gateway",
            id="no gateway",
        ),
        pytest.param({"dns": {"nameservers": "1.1.1.1"}}, 6, "dns.nameservers", id="dns"),
    ],
)
def test_unsupported_configuration_is_an_error_and_changes_nothing(host, refused, keys, code, reported):
    host.pod("a")
    with refused(code, reported):
        host.add("a", ptp(host) | keys)
    assert host.left() == {}


def test_dns_of_the_configuration_precedes_that_of_ipam(host):
    host.pod("a")
    assert host.add("a", ptp(host, dns={"domain": "x"}))["dns"] == {"domain": "x"}


def _tamper(host, pod, result, what):
    name = result["interfaces"][0]["name"]
    with KernelNetwork() as here, KernelNetwork(pod) as there:
        near, eth0 = here.links.get(name), there.links.get("eth0")
        match what:
            case "link":
                here.links.delete(name)
            case "down":
                there.links.change(eth0.ifindex, up=False)
            case "near end":
                here.links.change(name, up=False)
            case "address":
                [own] = [
                    address.interface
                    for address in there.addresses.list(eth0.ifindex)
                    if address.interface.version == 4
                ]
                there.addresses.delete(eth0.ifindex, own)
            case "gateway":
                [own] = [
                    address.interface for address in here.addresses.list(near.ifindex) if address.interface.version == 4
                ]
                here.addresses.delete(near.ifindex, own)
            case "route":
                [own] = [route for route in here.routes.list(4) if str(route.destination) == "10.88.0.2/32"]
                here.routes.delete(own)
            case "lease":
                (host.leases / "10.88.0.2").unlink()
            case "rules":
                KernelRuleset().delete_table("podwire")


@pytest.mark.parametrize(
    ("what", "reported"),
    [
        ("link", "link eth0 does not exist"),
        ("down", "eth0 is down"),
        ("near end", "is down"),
        ("address", "not have the address 10.88.0.2/24"),
        ("gateway", "not have the address 10.88.0.1"),
        ("route", "the route to 10.88.0.2"),
        ("lease", "leased"),
        ("rules", "not masqueraded"),
    ],
)
def test_check_fails_for_each_change(host, refused, what, reported):
    pod = host.pod("a")
    config = ptp(host, "10.88.0.0/24", ipMasq=True)
    config["ipam"]["routes"] = []
    result = host.add("a", config)
    host.check("a", config, result)
    _tamper(host, pod, result, what)
    with refused(101, reported):
        host.check("a", config, result)


@all_ways
def test_gc_releases_only_invalid_attachments(host, way):
    for item in "abc":
        host.pod(item)
    config = ptp(host, ipMasq=True)
    results = {letter: host.add(letter, config) for letter in "abc"}
    host.namespaces.remove("c")
    kept = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth0"}]}
    assert host.call("GC", "", config | kept, "") is None
    host.check("b", config, results["b"])
    assert [record.split("@")[1] for record in host.left()["records"]] == ["b"]
    assert host.call("GC", "", config | {"cni.dev/valid-attachments": []}, "") is None
    assert host.left() == {}


def test_status_fails_for_a_full_pool(host, refused):
    host.pod("a")
    config = ptp(host, "10.88.0.0/30")
    assert host.call("STATUS", "", config, "") is None
    host.add("a", config)
    with refused(50, "no IP addresses available"):
        host.call("STATUS", "", config, "")


@pytest.mark.parametrize("point", ADDING)
def test_del_removes_what_a_killed_add_left(host, point):
    host.pod("a")
    config = ptp(host, ipMasq=True)
    assert host.died("ADD", config, f"cni.ptp-{point}")[0] == -signal.SIGKILL
    if point != "connected":
        host.namespaces.remove("a")
    host.delete("a", config)
    assert host.left() == {}


@pytest.mark.parametrize("point", ["leased", "connected"])
def test_repeated_add_succeeds_after_a_killed_add(host, point):
    host.pod("a")
    config = ptp(host, ipMasq=True)
    assert host.died("ADD", config, f"cni.ptp-{point}")[0] == -signal.SIGKILL
    host.check("a", config, host.add("a", config))
    host.delete("a", config)
    assert host.left() == {}


@pytest.mark.parametrize("point", ["recorded", "connected", "attached"])
def test_failed_add_undoes_itself(host, point):
    host.pod("a")
    code, stdout, _ = host.died("ADD", ptp(host, ipMasq=True), f"cni.ptp-{point}", "error(disk on fire)")
    assert (code, json.loads(stdout)["code"]) == (1, 999)
    assert host.left() == {}


@pytest.mark.parametrize("point", DELETING)
def test_killed_del_is_completed_by_the_next(host, point):
    host.pod("a")
    config = ptp(host, ipMasq=True)
    host.add("a", config)
    assert host.died("DEL", config, f"cni.ptp-{point}")[0] == -signal.SIGKILL
    host.delete("a", config)
    assert host.left() == {}
