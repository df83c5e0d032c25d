"""sbr, on the real kernel: packets leave by the interface whose address they have."""

import signal
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Route

DUAL = ("10.88.0.0/24", "fd88::/64")
PLACES = (Path("/usr/lib/cni"), Path(__file__).parents[2] / ".venv/debian/usr/lib/cni")


def sbr(host, previous, **keys):
    config = {"cniVersion": "1.1.0", "name": "net", "type": "sbr", "dataDir": str(host.records)}
    return config | {"prevResult": previous} | keys


def rules(netns):
    with KernelNetwork(netns) as pod:
        return {
            (str(rule.source), rule.table, rule.priority)
            for family in (4, 6)
            for rule in pod.rules.list(family)
            if rule.source is not None
        }


def routes(netns, table):
    with KernelNetwork(netns) as pod:
        listed = [route for family in (4, 6) for route in pod.routes.list(family, table)]
    return {
        (str(route.destination), str(route.gateway or "")) for route in listed if not route.destination.is_link_local
    }


def attached(host, *subnets, **keys):
    """A pod on a bridge: its namespace, the result, the configuration of the bridge."""
    pod = host.pod("a")
    config = host.bridge(*(subnets or DUAL), **keys)
    return pod, host.add("a", config), config


def test_each_address_has_a_table_and_a_rule(host):
    pod, previous, bridge = attached(host)
    before = routes(pod, 254)
    config = sbr(host, previous)
    assert host.add("a", config) == previous
    assert rules(pod) == {("10.88.0.2/32", 100, 32765), ("fd88::2/128", 101, 32765)}
    assert routes(pod, 100) == {("10.88.0.0/24", ""), ("0.0.0.0/0", "10.88.0.1")}
    assert routes(pod, 101) == {("fd88::/64", ""), ("::/0", "fd88::1")}
    assert routes(pod, 254) == set()
    host.check("a", config, previous)
    host.delete("a", config)
    assert (rules(pod), routes(pod, 100), routes(pod, 254)) == (set(), set(), before)
    host.delete("a", bridge)
    assert host.left() == {}


def test_repeated_add_changes_nothing(host):
    pod, previous, _ = attached(host)
    config = sbr(host, previous)
    host.add("a", config)
    once = rules(pod), routes(pod, 100), routes(pod, 101)
    assert host.add("a", config) == previous
    assert (rules(pod), routes(pod, 100), routes(pod, 101)) == once


def test_second_interface_gets_the_next_tables(host):
    pod, previous, _ = attached(host, "10.88.0.0/24")
    host.add("a", sbr(host, previous))
    other = host.bridge("10.99.0.0/24", bridge="br9", name="other")
    second = host.add("a", other, CNI_IFNAME="eth1")
    host.add("a", sbr(host, second, name="other"), CNI_IFNAME="eth1")
    assert rules(pod) == {("10.88.0.2/32", 100, 32765), ("10.99.0.2/32", 101, 32764)}
    assert routes(pod, 101) == {("10.99.0.0/24", ""), ("0.0.0.0/0", "10.99.0.1")}
    host.delete("a", sbr(host, second, name="other"), CNI_IFNAME="eth1")
    assert rules(pod) == {("10.88.0.2/32", 100, 32765)}


def test_replies_leave_by_the_interface_that_was_asked(host, serving, seen):
    """Two networks, and a server that is asked at the address of the second from beyond its gateway."""
    pod, previous, _ = attached(host, "10.88.0.0/24")
    second = host.add("a", host.bridge("10.99.0.0/24", bridge="br9", name="other"), CNI_IFNAME="eth1")
    host.add("a", sbr(host, second, name="other"), CNI_IFNAME="eth1")
    with visit(pod), KernelNetwork() as inside:
        from_second = [route for route in inside.routes.list(4, 100) if route.destination.prefixlen == 0]
    assert [str(route.gateway) for route in from_second] == ["10.99.0.1"]
    with host.outside() as outside, serving(pod, 80) as server:
        with KernelNetwork(outside) as there:
            index = there.links.get("wan").ifindex
            there.routes.add(Route(ip_network("10.99.0.0/24"), ip_address("192.0.2.1"), index))
        assert seen(server, outside, "10.99.0.2", 80) == "192.0.2.2"
    assert previous


def test_configured_table_gets_rules_only(host):
    pod, previous, _ = attached(host)
    before = routes(pod, 254)
    config = sbr(host, previous, table=50)
    host.add("a", config)
    assert {(source, table) for source, table, _ in rules(pod)} == {("10.88.0.2/32", 50), ("fd88::2/128", 50)}
    assert routes(pod, 254) == before
    host.check("a", config, previous)
    host.delete("a", config)
    assert rules(pod) == set()


def test_configured_gateways_replace_those_of_the_result(host):
    pod, previous, _ = attached(host)
    host.add("a", sbr(host, previous, gateways=["10.88.0.77", "fd88::77"]))
    assert ("0.0.0.0/0", "10.88.0.77") in routes(pod, 100)
    assert ("::/0", "fd88::77") in routes(pod, 101)


def test_source_hints_keep_the_networks_in_the_main_table(host):
    pod, previous, _ = attached(host)
    config = sbr(host, previous, addSourceHints=True)
    host.add("a", config)
    assert routes(pod, 254) == {("10.88.0.0/24", ""), ("fd88::/64", "")}
    with KernelNetwork(pod) as inside:
        [own] = [route for route in inside.routes.list(4) if str(route.destination) == "10.88.0.0/24"]
    assert str(own.source) == "10.88.0.2"
    host.delete("a", config)
    assert rules(pod) == set()


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"table": 0}, 7, "table: 0", id="table"),
        pytest.param({"table": "x"}, 6, "table", id="table of a wrong type"),
        pytest.param({"gateways": ["10.88.0.1", "10.88.0.2"]}, 7, "more than one of IPv4", id="two gateways"),
        pytest.param({"gateways": ["x"]}, 7, r"gateways\[0\]", id="no gateway"),
        pytest.param({"addSourceHints": 1}, 6, "addSourceHints", id="no boolean"),
        pytest.param({"prevResult": None}, 7, "prevResult: missing", id="not chained"),
    ],
)
def test_invalid_configuration_is_an_error_and_changes_nothing(host, refused, keys, code, reported):
    pod, previous, _ = attached(host)
    before = routes(pod, 254)
    with refused(code, reported):
        host.add("a", sbr(host, previous) | keys)
    assert (rules(pod), routes(pod, 254)) == (set(), before)


@pytest.mark.parametrize("missing", ["rule", "route"])
def test_check_fails_for_each_change(host, refused, missing):
    pod, previous, _ = attached(host)
    config = sbr(host, previous)
    host.add("a", config)
    with KernelNetwork(pod) as inside:
        if missing == "rule":
            inside.rules.delete(next(rule for rule in inside.rules.list(4) if rule.table == 100))
        else:
            inside.routes.delete(inside.routes.list(4, 100)[0])
    with refused(101, f"the {missing} "):
        host.check("a", config, previous)


@pytest.mark.parametrize("point", ["recorded", "ruled", "filled", "attached", "added"])
def test_del_removes_what_a_killed_add_left(host, point):
    pod, previous, bridge = attached(host)
    before = routes(pod, 254)
    assert host.died("ADD", sbr(host, previous), f"cni.sbr-{point}")[0] == -signal.SIGKILL
    host.delete("a", sbr(host, previous))
    assert (rules(pod), routes(pod, 254)) == (set(), before)
    host.delete("a", bridge)
    assert host.left() == {}


@pytest.mark.parametrize("netns", ["gone", "empty"])
def test_del_needs_no_namespace(host, netns):
    _, previous, bridge = attached(host)
    host.add("a", sbr(host, previous))
    if netns == "gone":
        host.namespaces.remove("a")
    host.delete("a", sbr(host, previous), "" if netns == "empty" else None)
    host.delete("a", bridge, "")
    assert host.left() == {}


def test_rules_and_tables_are_those_of_the_reference_plugin(host, programs):
    reference = next((place for place in PLACES if (place / "sbr").exists()), None)
    assert reference is not None, "scripts/setup unpacks the reference plugins"
    host.way, outcomes = "program", []
    for place in (programs, reference):
        host.programs = programs
        name = place.name.lower()
        pod = host.pod(name)
        previous = host.add(name, host.bridge("10.88.0.0/24", bridge=f"br-{name}", name=name, cniVersion="1.0.0"))
        host.programs = place
        config = sbr(host, previous, name=name, cniVersion="1.0.0")
        host.add(name, config)
        shown = {(source.rpartition(".")[0], table, priority) for source, table, priority in rules(pod)}
        outcomes.append((shown, routes(pod, 100), routes(pod, 254)))
        host.delete(name, config)
        assert rules(pod) == set()
    assert outcomes[0] == outcomes[1]


def test_del_removes_rules_of_the_reference_plugin(host, programs):
    reference = next((place for place in PLACES if (place / "sbr").exists()), None)
    assert reference is not None, "scripts/setup unpacks the reference plugins"
    pod, previous, bridge = attached(host, "10.88.0.0/24", cniVersion="1.0.0")
    host.way, host.programs = "program", reference
    host.add("a", sbr(host, previous, cniVersion="1.0.0"))
    assert rules(pod) != set()
    host.programs = programs
    host.delete("a", sbr(host, previous, cniVersion="1.0.0"))
    assert rules(pod) == set()
    host.delete("a", bridge)
