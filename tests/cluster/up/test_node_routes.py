from hypothesis import given
from hypothesis import strategies as st

from podwire.cluster.up.node_routes import inside_networks, routes, ruleset
from podwire.cluster.up.slots import LAST, Slot

SLOTS = st.integers(0, LAST).map(Slot)


@given(SLOTS, st.integers(1, 16), st.integers(2, 16))
def test_every_other_nodes_pods_are_reached_by_its_own_address(slot, number, count):
    others = [item for item in range(1, count + 1) if item != number]
    found = routes(slot, others, 7, ipv6=True)
    ways = {item.destination: item.gateway for item in found}
    assert len(ways) == len(found) == 2 * len(others)
    for other in others:
        addresses = {address.version: address.ip for address in slot.addresses(other, ipv6=True)}
        assert {ways[range_] for range_ in slot.pod_ranges(other, ipv6=True)} == set(addresses.values())
    assert not set(slot.pod_ranges(number, ipv6=True)) & set(ways)
    assert {item.ifindex for item in found} == {7}


def test_only_traffic_between_pods_of_nodes_keeps_its_source_address():
    slot = Slot(3)
    inside = inside_networks(slot, [1, 3], ipv6=True, joinable=False)
    *_, first, second = ruleset(slot.pod_ranges(2, ipv6=True), inside, "podwire-up:/tmp/pw").splitlines()
    assert first == (
        "add rule inet podwire_nodes postrouting ip saddr 10.103.1.0/24 ip daddr != 10.103.1.0/24 "
        "ip daddr { 10.103.0.0/24, 10.103.2.0/24 } "
        "snat ip prefix to ip saddr map { 10.103.1.0/24 : 10.103.1.0/24 }"
    )
    assert second == (
        "add rule inet podwire_nodes postrouting ip6 saddr fd70:6f64:7703:1002::/64 "
        "ip6 daddr != fd70:6f64:7703:1002::/64 ip6 daddr { fd70:6f64:7703:1001::/64, fd70:6f64:7703:1003::/64 } "
        "snat ip6 prefix to ip6 saddr map { fd70:6f64:7703:1002::/64 : fd70:6f64:7703:1002::/64 }"
    )


def test_without_ipv6_there_are_no_ipv6_routes():
    inside = inside_networks(Slot(3), [2], ipv6=False, joinable=False)
    assert "ip6" not in ruleset(Slot(3).pod_ranges(1, ipv6=False), inside, "mark")
    assert [route.destination.version for route in routes(Slot(3), [2], 7, ipv6=False)] == [4]


def test_where_machines_may_join_all_addresses_of_the_cluster_see_the_source():
    slot = Slot(3)
    assert inside_networks(slot, [2], ipv6=True, joinable=True) == [slot.pods, slot.nodes, slot.own6]
    text = ruleset(slot.pod_ranges(1, ipv6=False), inside_networks(slot, [], ipv6=False, joinable=True), "mark")
    assert "ip saddr 10.103.0.0/24 ip daddr != 10.103.0.0/24 ip daddr { 10.103.0.0/17, 10.103.192.0/24 }" in text
