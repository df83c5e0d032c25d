"""Routes in a real namespace, distinguished by who answers."""

import socket
from ipaddress import ip_address, ip_network

import pytest

from podwire.linux.values import Route, Rule
from podwire.nriplugins.network import routes
from podwire.nriplugins.network.resources import Pod, Why
from podwire.nriplugins.network.routes.plan import PRIORITIES, PROTOCOL

WEB = Pod("default", "web", labels={"app": "web"}, ips=(ip_address("10.1.0.5"), ip_address("fd01::5")))
IP_MTU, IPV6_MTU = 14, 24
KERNEL = 2


def resource(name, *entries, created="2026-01-01T00:00:00Z", **spec):
    found = routes.read(
        {
            "kind": "PodRoute",
            "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
            "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "routes": list(entries), **spec},
        }
    )
    assert isinstance(found, routes.PodRoute), found
    return found


def entry(*destinations, **rest):
    return {"destinations": list(destinations), **rest}


def applied(pod, *resources):
    return routes.apply(pod.network, routes.plan(WEB, resources))


def ours(pod):
    network = pod.network
    listed = [route for family in (4, 6) for route in network.routes.list(family, None) if route.protocol == PROTOCOL]
    rules = [rule for family in (4, 6) for rule in network.rules.list(family) if rule.protocol == PROTOCOL]
    return listed, rules


V4, V6 = entry("10.20.0.0/16", via="10.1.0.2"), entry("fd20::/64", via="fd01::2")
BOTH = pytest.mark.parametrize("far", ["10.20.0.1", "fd20::1"], ids=["IPv4", "IPv6"])


@BOTH
def test_a_destination_is_reached_via_the_gateway_that_a_resource_names(pod, gateways, far):
    assert pod.ask(far, 80).startswith("first")
    assert applied(pod, resource("a", V4, V6)) == (2, ())
    assert pod.ask(far, 80).startswith("second")
    assert pod.ask(far.replace("2", "3"), 80).startswith("first"), "other destinations go as before"


@BOTH
def test_only_packets_from_a_source_look_into_a_table_of_its_own(pod, gateways, far):
    pod.address("10.1.0.6/24", "fd01::6/64")
    sources = ["10.1.0.6/32", "fd01::6/128"]
    applied(pod, resource("a", V4, V6, table=700, sources=sources))
    other = "fd01::6" if ":" in far else "10.1.0.6"
    assert pod.ask(far, 80, source=other) == f"second {other}"
    assert pod.ask(far, 80, source=other.replace("6", "5")).startswith("first")


@BOTH
def test_the_pods_own_addresses_can_be_the_source(pod, gateways, far):
    default = entry("0.0.0.0/0", via="10.1.0.2"), entry("::/0", via="fd01::2")
    assert applied(pod, resource("a", *default, table=700, sources=["PodIPs"])) == (4, ())
    own = "fd01::5" if ":" in far else "10.1.0.5"
    assert pod.ask(far, 80, source=own).startswith("second")


@BOTH
def test_a_table_for_all_sources_precedes_the_main_table(pod, gateways, far):
    default = entry("0.0.0.0/0", via="10.1.0.2"), entry("::/0", via="fd01::2")
    applied(pod, resource("a", *default, table=700, sources=["0.0.0.0/0", "::/0"]))
    assert pod.ask(far, 80).startswith("second"), "also where no source has been chosen yet"


@pytest.mark.parametrize(
    ("far", "level", "option"),
    [("10.20.0.1", socket.IPPROTO_IP, IP_MTU), ("fd20::1", socket.IPPROTO_IPV6, IPV6_MTU)],
    ids=["IPv4", "IPv6"],
)
def test_a_route_has_an_mtu_of_its_own(pod, gateways, far, level, option):
    applied(pod, resource("a", {**V4, "mtu": 1300}, {**V6, "mtu": 1300, "advmss": 1200}))
    with pod.connected(far, 80) as opened:
        assert opened.getsockopt(level, option) == 1300
    assert [our.advmss for our in ours(pod)[0]] == [0, 1200]


@BOTH
def test_the_route_with_the_smaller_metric_is_taken(pod, gateways, far):
    slow = resource("slow", {**V4, "metric": 50}, {**V6, "metric": 50})
    quick = resource(
        "quick", entry("10.20.0.0/16", via="10.1.0.1", metric=10), entry("fd20::/64", via="fd01::1", metric=10)
    )
    assert applied(pod, slow, quick) == (4, ())
    assert pod.ask(far, 80).startswith("first")
    applied(pod, slow)
    assert pod.ask(far, 80).startswith("second")


@BOTH
def test_a_route_leaves_by_the_interface_that_is_named(lab, pod, gateways, far):
    lab.plugged("pod", "10.2.0.5/24", "fd02::5/64", link="eth1")
    gateways[1].address("10.2.0.2/24", "fd02::2/64")
    ways = entry("10.20.0.0/16", via="10.2.0.2"), entry("fd20::/64", via="fd02::2")
    assert applied(pod, resource("a", *ways, interface="eth1")) == (2, ())
    assert pod.ask(far, 80) == f"second {'fd02::5' if ':' in far else '10.2.0.5'}"


def test_a_gateway_beyond_the_pods_own_network_needs_onlink(pod, gateways):
    gateways[1].address("192.168.7.1/32", link="lo")
    way = entry("10.20.0.0/16", via="192.168.7.1")
    [trouble] = applied(pod, resource("a", way)).problems
    assert (trouble.why, trouble.field) == (Why.FAILED, "spec.routes[0].destinations[0]")
    assert trouble.fatal
    assert trouble.reason.startswith("add route 10.20.0.0/16 via 192.168.7.1")
    assert applied(pod, resource("a", {**way, "onLink": True})) == (1, ())
    assert applied(pod, resource("a", {**way, "onLink": True})) == (0, ())
    assert pod.ask("10.20.0.1", 80).startswith("second")


def test_destinations_on_the_link_need_no_gateway(pod, gateways):
    assert applied(pod, resource("a", entry("10.20.0.0/16", "fd20::/64"))) == (2, ())
    assert pod.ask("10.20.0.1", 80).startswith(("first", "second"))
    assert applied(pod, resource("a", entry("10.20.0.0/16", "fd20::/64"))) == (0, ())


def test_applying_again_changes_nothing(pod):
    wanted = resource(
        "a", {**V4, "mtu": 1400, "metric": 7}, {**V6, "advmss": 1200}, entry("10.30.0.0/16"),
        table=70000, sources=["PodIPs", "10.0.0.0/8", "0.0.0.0/0", "::/0"],
    )  # fmt: skip
    assert applied(pod, wanted) == (8, ())
    assert applied(pod, wanted) == (0, ())


def test_a_changed_resource_changes_only_differing_routes(pod, gateways):
    third = entry("10.30.0.0/16", via="10.1.0.1")
    applied(pod, resource("a", V4, V6, third))
    assert applied(pod, resource("a", {**V4, "via": "10.1.0.1"}, V6, third)).changed == 1
    assert pod.ask("10.20.0.1", 80).startswith("first")
    assert applied(pod, resource("a", V6, third)).changed == 1
    assert applied(pod, resource("a", {**V6, "mtu": 1400}, third)).changed == 1
    assert [(str(our.destination), our.mtu) for our in ours(pod)[0]] == [("10.30.0.0/16", 0), ("fd20::/64", 1400)]


def test_a_rule_moves_to_another_table_with_its_routes(pod, gateways):
    applied(pod, resource("a", V4, table=700, sources=["PodIPs"]))
    assert applied(pod, resource("a", V4, table=701, sources=["PodIPs"])).changed == 6
    listed, rules = ours(pod)
    assert {item.table for item in (*listed, *rules)} == {701}
    assert pod.ask("10.20.0.1", 80, source="10.1.0.5").startswith("second")


def of_others(pod):
    """But for what the kernel makes by itself, in its own time."""
    listed = [route for family in (4, 6) for route in pod.network.routes.list(family, None) if route.protocol != KERNEL]
    return listed, [pod.network.rules.list(number) for number in (4, 6)]


def test_removal_leaves_nothing_of_ours_and_everything_of_others(pod):
    before = of_others(pod)
    applied(pod, resource("a", V4, V6, table=700, sources=["PodIPs"]), resource("b", entry("10.40.0.0/16")))
    assert routes.remove(pod.network) == 5
    assert of_others(pod) == before
    assert routes.remove(pod.network) == 0


def test_lost_rules_are_applied_again(pod):
    applied(pod, resource("a", V4, V6))
    pod.network.links.change("eth0", up=False)  # the kernel forgets routes of a link that is down
    pod.network.links.change("eth0", up=True)
    assert applied(pod, resource("a", V4)) == (1, ())
    assert [str(our.destination) for our in ours(pod)[0]] == ["10.20.0.0/16"]


def test_a_foreign_route_is_not_replaced(pod, gateways):
    default = resource("a", entry("0.0.0.0/0", via="10.1.0.2"), entry("10.20.0.0/16", via="10.1.0.2"))
    changed, [trouble] = applied(pod, default)
    assert changed == 1, "its other route is set"
    assert trouble.why is Why.FAILED
    assert "that somebody else made (protocol 112) has its place in table 254 with metric 0" in trouble.reason
    assert pod.ask("10.30.0.1", 80).startswith("first")
    assert pod.ask("10.20.0.1", 80).startswith("second")


def test_a_rejected_resource_does_not_affect_others(pod, gateways):
    bad = resource("bad", entry("10.30.0.0/16", via="192.168.7.1"), failurePolicy="Ignore")
    changed, [trouble] = applied(pod, bad, resource("good", V4, V6, table=700, sources=["PodIPs"]))
    assert (trouble.resource.name, trouble.fatal) == ("bad", False)
    assert changed == 5
    assert pod.ask("10.20.0.1", 80, source="10.1.0.5").startswith("second")


def test_a_missing_interface_is_a_problem(pod):
    changed, [trouble] = applied(pod, resource("a", V4, interface="net1"))
    assert changed == 0
    assert (trouble.field, trouble.reason) == ("spec.interface", "there is no interface net1 in the pod")


def test_a_foreign_rule_in_our_range_stays(pod):
    other = Rule(PRIORITIES.start, 700, source=ip_network("10.9.0.0/16"), protocol=112)
    route = Route(ip_network("10.9.0.0/16"), ip_address("10.1.0.2"), pod.network.links.get("eth0").ifindex, protocol=4)
    pod.network.rules.add(other)
    pod.network.routes.add(route)
    assert routes.remove(pod.network) == 0
    assert other in pod.network.rules.list(4)
