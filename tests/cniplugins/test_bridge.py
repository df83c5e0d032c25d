"""bridge, on the real kernel: what a pod gets, and that nothing is left of it."""

import json
import time

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.values import Bridge, Veth

all_ways = pytest.mark.parametrize("way", ["in process", "program", "daemon"])
DUAL = ("10.88.0.0/24", "fd88::/64")


def addresses(netns):
    with KernelNetwork(netns) as pod:
        return {str(address.interface): address for address in pod.addresses.list(pod.links.get("eth0").ifindex)}


@all_ways
def test_add_makes_everything_that_the_result_has(host):
    pod = host.pod("a")
    result = host.add("a", host.bridge(*DUAL, mtu=1400))
    bridge, outside, inside = result["interfaces"]
    with KernelNetwork() as here, KernelNetwork(pod) as there:
        assert (bridge["name"], bridge["mac"]) == ("cni0", here.links.get("cni0").mac)
        port, eth0 = here.links.get(outside["name"]), there.links.get("eth0")
        assert (port.up, port.state, port.master) == (True, "up", here.links.get("cni0").ifindex)
        assert inside == {"name": "eth0", "mac": eth0.mac, "sandbox": pod, "mtu": 1400}
        assert (outside["mtu"], outside["mac"], eth0.mtu, eth0.up) == (1400, port.mac, 1400, True)
        defaults = [
            route for family in (4, 6) for route in there.routes.list(family) if route.destination.prefixlen == 0
        ]
    assert [str(default.gateway) for default in defaults] == ["10.88.0.1", "fd88::1"]
    assert result["ips"] == [
        {"interface": 2, "address": "10.88.0.2/24", "gateway": "10.88.0.1"},
        {"interface": 2, "address": "fd88::2/64", "gateway": "fd88::1"},
    ]
    assert result["routes"] == [{"dst": "0.0.0.0/0", "gw": "10.88.0.1"}, {"dst": "::/0", "gw": "fd88::1"}]
    has = addresses(pod)
    assert [has[name].tentative for name in ("10.88.0.2/24", "fd88::2/64")] == [False, False]


@all_ways
def test_del_leaves_nothing_but_the_bridge(host):
    host.pod("a")
    config = host.bridge(*DUAL, ipMasq=True)
    host.add("a", config)
    assert set(host.left()) == {"links", "leases", "records", "elements"}
    host.delete("a", config)
    assert host.left() == {}
    host.delete("a", config)


def test_pods_and_the_gateway_reach_each_other_at_once(host, serving, seen):
    a, b = host.pod("a"), host.pod("b")
    for letter in "ab":
        host.add(letter, host.bridge(*DUAL))
    with serving(b, 80) as server, serving(b, 86, 6) as server6:
        assert seen(server, a, "10.88.0.3", 80) == "10.88.0.2"
        assert seen(server6, a, "fd88::3", 86) == "fd88::2"
        assert seen(server, None, "10.88.0.3", 80) == "10.88.0.1"
    with serving(None, 80) as server, serving(None, 86, 6) as server6:
        assert seen(server, a, "10.88.0.1", 80) == "10.88.0.2"
        assert seen(server6, a, "fd88::1", 86) == "fd88::2"


def test_only_traffic_that_leaves_the_subnet_is_masqueraded(host, serving, seen):
    a, b = host.pod("a"), host.pod("b")
    for letter in "ab":
        host.add(letter, host.bridge(*DUAL, ipMasq=True))
    with host.outside() as outside, serving(outside, 80) as server, serving(outside, 86, 6) as server6:
        assert seen(server, a, "192.0.2.2", 80) == "192.0.2.1"
        assert seen(server6, a, "2001:db8::2", 86) == "2001:db8::1"
        with serving(b, 80) as neighbour:
            assert seen(neighbour, a, "10.88.0.3", 80) == "10.88.0.2"
        host.delete("a", host.bridge(*DUAL, ipMasq=True))
        assert seen(server, b, "192.0.2.2", 80) == "192.0.2.1", "the other pod's masquerading stays"


def test_without_masquerading_replies_do_not_return(host, serving, seen):
    a = host.pod("a")
    host.add("a", host.bridge())
    with host.outside() as outside, serving(outside, 80) as server:
        assert seen(server, a, "192.0.2.2", 80) is None


def test_repeated_add_returns_the_same_result(host):
    host.pod("a")
    first = host.add("a", host.bridge(*DUAL, ipMasq=True))
    before = host.left()
    assert host.add("a", host.bridge(*DUAL, ipMasq=True)) == first
    assert host.left() == before


def test_repeated_add_with_another_configuration_is_an_error(host, refused):
    host.pod("a")
    first = host.add("a", host.bridge())
    with refused(100, "another configuration"):
        host.add("a", host.bridge(mtu=1300))
    host.check("a", host.bridge(), first)


def test_repeated_add_makes_a_missing_link_again(host):
    host.pod("a")
    first = host.add("a", host.bridge())
    with KernelNetwork() as here:
        here.links.delete(first["interfaces"][1]["name"])
    again = host.add("a", host.bridge())
    host.check("a", host.bridge(), again)
    host.delete("a", host.bridge())
    assert host.left() == {}


def test_foreign_interface_is_not_touched(host, refused):
    pod = host.pod("a")
    with KernelNetwork(pod) as inside:
        inside.links.add(Veth("eth0", "other"))
        index = inside.links.get("eth0").ifindex
        with refused(100, "eth0 already exists"):
            host.add("a", host.bridge())
        assert inside.links.get("eth0").ifindex == index
    host.delete("a", host.bridge())
    with KernelNetwork(pod) as inside:
        assert inside.links.get("eth0").ifindex == index
    assert host.left() == {}


def test_two_interfaces_of_a_pod_are_two_attachments(host):
    pod = host.pod("a")
    host.add("a", host.bridge())
    second = host.add("a", host.bridge(name="net", isDefaultGateway=False, isGateway=True), CNI_IFNAME="net1")
    assert second["ips"][0]["address"] == "10.88.0.3/24"
    host.delete("a", host.bridge())
    with KernelNetwork(pod) as inside:
        assert inside.links.get("net1").up


@pytest.mark.parametrize("how", ["the namespace is gone", "no namespace is named", "another is there now"])
def test_del_needs_no_namespace(host, how):
    pod = host.pod("a")
    config = host.bridge(*DUAL, ipMasq=True)
    host.add("a", config)
    if how != "no namespace is named":
        host.namespaces.remove("a")
    if how == "another is there now":
        host.pod("a")
        with KernelNetwork(pod) as inside:
            inside.links.add(Veth("eth0", "other"))
    host.delete("a", config, "" if how == "no namespace is named" else None)
    assert host.left() == {}
    if how == "another is there now":
        with KernelNetwork(pod) as inside:
            inside.links.get("eth0")


@pytest.mark.parametrize("previous", [None, {}, {"ips": 7}, "junk"])
def test_del_ignores_prev_result(host, previous):
    host.pod("a")
    config = host.bridge(ipMasq=True)
    host.add("a", config)
    host.delete("a", config | {"prevResult": previous})
    assert host.left() == {}


def test_del_does_not_touch_a_foreign_link_of_the_same_name(host):
    host.pod("a")
    name = host.add("a", host.bridge())["interfaces"][1]["name"]
    with KernelNetwork() as here:
        here.links.delete(name)
        here.links.add(Veth(name, "peer"))
        host.delete("a", host.bridge())
        assert here.links.get(name).kind == "veth"
    assert host.left() == {}


def test_del_releases_everything_without_a_record(host):
    host.pod("a")
    host.add("a", host.bridge())
    for path in host.records.glob("*/*"):
        path.write_bytes(b"")
    host.delete("a", host.bridge())
    assert host.left() == {}


def test_del_keeps_the_rules_of_an_address_that_another_pod_has(host):
    for letter in "ab":
        host.pod(letter)
    config = host.bridge(ipMasq=True)
    config["ipam"]["ranges"] = [[{"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.9", "rangeEnd": "10.88.0.9"}]]
    host.add("a", config)
    [lost] = [path.read_bytes() for path in host.records.glob("bridge/*")]
    host.delete("a", config)
    result = host.add("b", config)
    (host.records / "bridge" / "net@a@eth0").write_bytes(lost)  # as if DEL had died before it could forget
    host.delete("a", config)
    host.check("b", config, result)


def test_bridge_with_a_conflicting_address_needs_force_address(host, refused):
    host.pod("a")
    host.add("a", host.bridge())
    host.delete("a", host.bridge())
    with refused(100, '"cni0" already has an IP address different from 10.99.0.1/24'):
        host.add("a", host.bridge("10.99.0.0/24"))
    assert host.left() == {}
    host.add("a", host.bridge("10.99.0.0/24", forceAddress=True))
    with KernelNetwork() as here:
        has = {str(address.interface) for address in here.addresses.list(here.links.get("cni0").ifindex)}
    assert {item for item in has if "." in item} == {"10.99.0.1/24"}


def test_link_that_is_not_a_bridge_is_not_touched(host, refused):
    host.pod("a")
    with KernelNetwork() as here:
        here.links.add(Veth("cni0", "peer"))
        with refused(100, "is not a bridge"):
            host.add("a", host.bridge())
        assert here.links.get("cni0").kind == "veth"
    assert host.left() == {}


def test_existing_bridge_is_used_and_set_up(host):
    host.pod("a")
    with KernelNetwork() as here:
        here.links.add(Bridge("cni0"))
        host.add("a", host.bridge())
        assert here.links.get("cni0").up


def test_gateway_enables_forwarding(host):
    host.pod("a")
    host.pod("b")
    sysctls = KernelSysctls()
    sysctls.write("net.ipv4.ip_forward", "0")
    result = host.add("a", host.bridge(isDefaultGateway=False))
    assert "routes" not in result
    assert sysctls.read("net.ipv4.ip_forward") == "0"
    host.add("b", host.bridge(*DUAL, isDefaultGateway=False, isGateway=True))
    assert sysctls.read("net.ipv4.ip_forward") == sysctls.read("net.ipv6.conf.all.forwarding") == "1"


def test_pods_ignore_router_advertisements(host):
    pod = host.pod("a")
    host.add("a", host.bridge())
    assert KernelSysctls().read("net.ipv6.conf.cni0.accept_ra") == "0"
    assert KernelSysctls(pod).read("net.ipv6.conf.eth0.accept_ra") == "0"


@pytest.mark.parametrize(
    ("keys", "env", "mac"),
    [
        pytest.param({}, {}, "0a:58:0a:58:00:02", id="follows from the address"),
        pytest.param({}, {"CNI_ARGS": "IgnoreUnknown=1;MAC=02:00:00:00:00:01"}, "02:00:00:00:00:01", id="CNI_ARGS"),
        pytest.param(
            {"args": {"cni": {"mac": "02:00:00:00:00:02"}}},
            {"CNI_ARGS": "MAC=02:00:00:00:00:01"},
            "02:00:00:00:00:02",
            id="args",
        ),
        pytest.param(
            {"args": {"cni": {"mac": "02:00:00:00:00:02"}}, "runtimeConfig": {"Mac": "02:00:00:00:00:03"}},
            {},
            "02:00:00:00:00:03",
            id="capability",
        ),
    ],
)
def test_requested_mac_address_is_used(host, keys, env, mac):
    host.pod("a")
    assert host.add("a", host.bridge(**keys), **env)["interfaces"][2]["mac"] == mac


def test_hairpin_mode_isolation_and_promiscuity_are_set(host):
    host.pod("a")
    host.pod("b")
    port = host.add("a", host.bridge(hairpinMode=True, portIsolation=True))["interfaces"][1]["name"]
    host.add("b", host.bridge(promiscMode=True))
    with KernelNetwork() as here:
        link = here.links.get(port)
        assert (link.hairpin, link.isolated, here.links.get("cni0").promiscuous) == (True, True, True)


def test_routes_have_all_configured_attributes(host):
    pod = host.pod("a")
    config = host.bridge(*DUAL, isDefaultGateway=False)
    config["ipam"]["routes"] = [
        {"dst": "10.9.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 50},
        {"dst": "10.8.0.0/16", "gw": "10.88.0.7", "table": 77},
        {"dst": "fd99::/64"},
    ]
    result = host.add("a", config)
    with KernelNetwork(pod) as inside:
        [nine] = [route for route in inside.routes.list(4) if str(route.destination) == "10.9.0.0/16"]
        [eight] = inside.routes.list(4, 77)
        [six] = [route for route in inside.routes.list(6) if str(route.destination) == "fd99::/64"]
    assert (str(nine.gateway), nine.mtu, nine.advmss, nine.metric) == ("10.88.0.1", 1300, 1200, 50)
    assert (str(eight.gateway), str(six.gateway)) == ("10.88.0.7", "fd88::1")
    assert result["routes"][0] == {"dst": "10.9.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 50}
    host.check("a", config, result)


def test_without_ipam_the_link_has_no_addresses(host):
    pod = host.pod("a")
    config = host.bridge(isDefaultGateway=False, ipam={})
    result = host.add("a", config)
    assert "ips" not in result
    assert addresses(pod).keys() <= {address for address in addresses(pod) if address.startswith("fe80")}
    host.check("a", config, result)
    host.delete("a", config)
    assert host.left() == {}


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"vlan": 5}, 2, "vlan: 5", id="vlan"),
        pytest.param({"vlanTrunk": [{"id": 5}]}, 2, "vlanTrunk", id="trunk"),
        pytest.param({"ipspoofchk": "yes"}, 6, "ipspoofchk", id="spoofing"),
        pytest.param({"ipMasqBackend": "ebpf"}, 2, "ipMasqBackend", id="backend"),
        pytest.param({"hairpinMode": True, "promiscMode": True}, 7, "at the same time", id="hairpin and promiscuous"),
        pytest.param({"mtu": -1}, 7, "mtu", id="negative mtu"),
        pytest.param({"mtu": "1500"}, 6, "mtu", id="mtu as text"),
        pytest.param({"bridge": "a/b"}, 7, "bridge", id="bridge name"),
        pytest.param({"bridge": "br%d"}, 7, "bridge", id="bridge name that the kernel fills in"),
        pytest.param({"runtimeConfig": {"mac": "02:00"}}, 7, "mac", id="mac"),
        pytest.param({"ipam": {"type": "../evil"}}, 7, "bare name", id="ipam outside the path"),
        pytest.param({"ipam": {"type": "absent"}}, 7, "absent is not in CNI_PATH", id="ipam that is not there"),
        pytest.param({"dns": {"nameservers": "1.1.1.1"}}, 6, "dns.nameservers", id="dns"),
    ],
)
def test_unsupported_configuration_is_an_error_and_changes_nothing(host, refused, keys, code, reported):
    host.pod("a")
    with refused(code, reported):
        host.add("a", host.bridge(**keys))
    assert host.left() == {}


@pytest.mark.parametrize(
    ("netns", "reported"),
    [
        pytest.param("gone", "namespace", id="missing"),
        pytest.param("file", "nothing is pinned", id="a file"),
        pytest.param("/proc/self/ns/ipc", "not a net namespace", id="of another kind"),
        pytest.param("/proc/thread-self/ns/net", "namespace of the host", id="the host's own"),
    ],
)
def test_path_that_is_not_a_namespace_is_an_error(host, refused, netns, reported, tmp_path):
    (tmp_path / "file").touch()
    path = netns if netns.startswith("/") else str(tmp_path / netns)
    with refused(8, reported):
        host.call("ADD", "a", host.bridge(), path)
    with KernelNetwork() as here:
        assert [link.name for link in here.links.list()] == ["lo"]
    assert host.left() == {}


def test_dns_of_the_configuration_precedes_that_of_ipam(host, tmp_path):
    host.pod("a")
    host.pod("b")
    (tmp_path / "resolv.conf").write_text("# local\nnameserver 9.9.9.9\n\nsearch a b ; both\noptions ndots:5\n")
    config = host.bridge()
    config["ipam"]["resolvConf"] = str(tmp_path / "resolv.conf")
    assert host.add("a", config)["dns"] == {"nameservers": ["9.9.9.9"], "search": ["a", "b"], "options": ["ndots:5"]}
    assert host.add("b", config | {"dns": {"domain": "x"}})["dns"] == {"domain": "x"}


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", None])
def test_result_has_the_form_of_the_requested_version(host, version):
    host.pod("a")
    config = host.bridge(*DUAL, cniVersion=version)
    result = host.add("a", config)
    assert result["cniVersion"] == (version or "0.1.0")
    if version in (None, "0.1.0", "0.2.0"):
        assert result["ip4"] == {
            "ip": "10.88.0.2/24",
            "gateway": "10.88.0.1",
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.88.0.1"}],
        }
    else:
        assert ("version" in result["ips"][0]) == (version < "1.0.0")
        assert ("mtu" in result["interfaces"][0]) == (version == "1.1.0")
    assert host.add("a", config) == result
    host.delete("a", config)
    assert host.left() == {}


def _tamper(host, pod, result, what):
    link = result["interfaces"][1]["name"]
    with KernelNetwork() as here, KernelNetwork(pod) as there:
        eth0 = there.links.get("eth0")
        match what:
            case "link":
                here.links.delete(link)
            case "down":
                there.links.change(eth0.ifindex, up=False)
            case "mac":
                there.links.change(eth0.ifindex, mac="02:00:00:00:00:09")
            case "address":
                [own] = [
                    address.interface
                    for address in there.addresses.list(eth0.ifindex)
                    if address.interface.version == 4
                ]
                there.addresses.delete(eth0.ifindex, own)
            case "route":
                [own] = [route for route in there.routes.list(4) if route.destination.prefixlen == 0]
                there.routes.delete(own)
            case "bridge":
                here.links.change(link, master=0)
            case "lease":
                (host.leases / "10.88.0.2").unlink()
            case "rules":
                KernelRuleset().delete_table("podwire")


@pytest.mark.parametrize(
    ("what", "reported"),
    [
        ("link", "link eth0 does not exist"),
        ("down", "eth0 is down"),
        ("mac", "MAC"),
        ("address", "not have the address 10.88.0.2/24"),
        ("route", "the route to 0.0.0.0/0 via 10.88.0.1 does not exist"),
        ("bridge", "not a port of the bridge"),
        ("lease", "leased"),
        ("rules", "not masqueraded"),
    ],
)
def test_check_fails_for_each_change(host, refused, what, reported):
    pod = host.pod("a")
    config = host.bridge(ipMasq=True)
    result = host.add("a", config)
    host.check("a", config, result)
    _tamper(host, pod, result, what)
    with refused(101, reported):
        host.check("a", config, result)


def test_check_ignores_what_others_added(host):
    pod = host.pod("a")
    result = host.add("a", host.bridge())
    with KernelNetwork() as here, KernelNetwork(pod) as there:
        here.links.change(result["interfaces"][1]["name"], mac="02:00:00:00:00:09")
        there.links.add(Veth("net1", "peer"))
    host.check("a", host.bridge(), result)


def test_check_needs_prev_result_and_a_record(host, refused):
    host.pod("a")
    with refused(7, "prevResult"):
        host.call("CHECK", "a", host.bridge())
    with refused(3, "not attached"):
        host.check("a", host.bridge(), {"cniVersion": "1.1.0"})


def test_delegate_gets_the_whole_call_and_its_errors_are_returned(host, refused, tmp_path, programs):
    host.pod("a")
    seen = tmp_path / "seen"
    script = tmp_path / "bin" / "mine"
    script.parent.mkdir()
    answer = {"ips": [{"address": "10.88.0.40/24", "gateway": "10.88.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}
    outcome = f"echo $CNI_COMMAND $CNI_CONTAINERID $(cat) >>{seen}"
    script.write_text(f"#!/bin/sh\n{outcome}\ntest $CNI_COMMAND != ADD || cat {seen}.answer\n")
    script.chmod(0o755)
    (tmp_path / "seen.answer").write_text(json.dumps(answer))
    config = host.bridge(ipam={"type": "mine", "own": 7}, unknown={"kept": True})
    path = {"CNI_PATH": f"{programs}:{script.parent}"}
    result = host.add("a", config, **path)
    assert result["ips"][0] == {"interface": 2, "address": "10.88.0.40/24", "gateway": "10.88.0.1"}
    host.check("a", config, result, **path)
    host.delete("a", config, **path)
    calls = [line.split(" ", 2) for line in seen.read_text().splitlines()]
    assert [call[0] for call in calls] == ["ADD", "CHECK", "DEL"]
    assert json.loads(calls[0][2]) == config
    (tmp_path / "seen.answer").write_text('{"code": 107, "msg": "all gone"}')
    with refused(107, "^all gone$"):
        host.add("a", config, **path)
    assert [line.split(" ")[0] for line in seen.read_text().splitlines()][3:5] == ["ADD", "DEL"]
    assert host.left() == {}


@pytest.mark.parametrize("family", [4, 6])
def test_ipv6_takes_as_long_as_ipv4(host, family):
    host.pod("a")
    host.pod("warm")
    host.add("warm", host.bridge(*DUAL))
    started = time.monotonic()
    host.add("a", host.bridge(*(DUAL if family == 6 else DUAL[:1])))
    assert time.monotonic() - started < 1.0  # duplicate address detection alone would take longer


def test_records_are_readable_by_root_only(host):
    host.pod("a")
    host.add("a", host.bridge())
    [record] = host.records.glob("bridge/*")
    assert oct(record.stat().st_mode & 0o777) == "0o600"
    assert record.name == "net@a@eth0"
