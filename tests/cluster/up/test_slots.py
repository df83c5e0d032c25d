from ipaddress import ip_network
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.cluster.up.slots import LAST, Slot, collisions

NUMBERS = st.integers(0, LAST)


def ranges(slot):
    return [slot.pods, slot.services, slot.nodes, slot.own6]


def test_no_two_slots_share_a_range_a_port_or_a_name():
    slots = [Slot(number) for number in range(LAST + 1)]
    for one, other in combinations(slots, 2):
        assert not any(a.overlaps(b) for a in ranges(one) for b in ranges(other) if a.version == b.version)
    for attribute in (lambda s: s.api_port, lambda s: s.bridge, lambda s: s.table, lambda s: s.port(1)):
        assert len({attribute(slot) for slot in slots}) == len(slots)


@given(NUMBERS)
def test_a_slots_own_ranges_do_not_meet(number):
    slot = Slot(number)
    assert not any(a.overlaps(b) for a, b in combinations(ranges(slot)[:3], 2))


@given(NUMBERS, st.integers(1, 64))
def test_names_of_links_fit_the_kernel(number, node):
    slot = Slot(number)
    assert max(map(len, (slot.bridge, slot.port(node)))) <= 15


@given(NUMBERS, st.integers(1, 64), st.integers(1, 64))
def test_every_node_has_addresses_and_pods_of_its_own(number, one, other):
    slot = Slot(number)
    for network in slot.pod_ranges(one, ipv6=True):
        assert slot.owns(network)
        assert one == other or not any(network.overlaps(range_) for range_ in slot.pod_ranges(other, ipv6=True)
                                       if range_.version == network.version)  # fmt: skip
    assert slot.addresses(one, ipv6=True)[0].ip in slot.nodes
    assert slot.addresses(one, ipv6=True) != slot.gateways(ipv6=True)


def test_slot_0_has_the_standard_ports_and_ranges():
    slot = Slot(0)
    assert (slot.api_port, str(slot.pods), str(slot.services)) == (6443, "10.244.0.0/16", "10.96.0.0/16")


@pytest.mark.parametrize(
    ("route", "collides"),
    [
        pytest.param("10.103.7.0/24", True, id="a part of it"),
        pytest.param("10.0.0.0/8", True, id="all of it"),
        pytest.param("10.104.0.0/16", False, id="a neighbour's"),
        pytest.param("0.0.0.0/0", False, id="the way out"),
        pytest.param("::/0", False, id="the IPv6 way out"),
        pytest.param("fd70:6f64:7703::/64", True, id="an IPv6 part"),
    ],
)
def test_a_host_route_into_a_slot_makes_it_unusable(route, collides):
    assert bool(collisions(Slot(3), [ip_network(route)])) is collides


def test_without_ipv6_a_slot_has_only_ipv4_addresses():
    slot = Slot(3)
    found = (*slot.gateways(ipv6=False), *slot.addresses(1, ipv6=False), *slot.pod_ranges(1, ipv6=False))
    assert {item.version for item in found} == {4}
