"""Addresses, routes, rules and neighbours, and what other programs see of them."""

from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podwire.linux import errors
from podwire.linux.values import LOCAL, MAIN, PROTOCOL, Address, Bridge, Neighbour, Route, Rule, Veth
from tests.eventually import eventually

IF4, IF6 = ip_interface("10.1.0.5/24"), ip_interface("fd00:1::5/64")
GW4, GW6 = ip_address("10.1.0.1"), ip_address("fd00:1::1")
ALL4, ALL6 = ip_network("0.0.0.0/0"), ip_network("::/0")


@pytest.fixture
def pod(host):
    """On demand: a network with eth0 up at index 2, its peer up outside, and a way to look with other eyes."""

    def make():
        network, path = host("pod")
        outside, _ = host("outside")
        outside.links.add(Veth("p1", "eth0", path, 2, up=True))
        network.links.change(2, up=True)
        return network, path

    return make


def ours(addresses) -> list[Address]:
    return [address for address in addresses if not address.interface.is_link_local]


def sane(routes) -> list[Route]:
    """Without the link-local ones that the kernel adds to IPv6 in its own time."""
    return sorted((route for route in routes if not route.destination.is_link_local), key=str)


def test_addresses_are_there_as_ours_and_can_be_used_at_once(kernel, pod, reported):
    network, path = pod()
    network.addresses.add(2, IF4)
    network.addresses.add(2, IF6)
    assert ours(network.addresses.list(2)) == [Address(2, IF4, PROTOCOL), Address(2, IF6, PROTOCOL)]
    (seen,) = reported("ip", "-j", "addr", "show", "eth0", netns=path)
    four, six = (item for item in seen["addr_info"] if item["scope"] == "global")
    assert (four["local"], four["prefixlen"], four["broadcast"]) == ("10.1.0.5", 24, "10.1.0.255")
    assert (six["local"], six["prefixlen"], six["nodad"]) == ("fd00:1::5", 64, True)
    assert "tentative" not in six


def test_a_lent_address_is_ours_and_leaves_by_itself_unless_it_is_extended(kernel, pod):
    network, _ = pod()
    network.addresses.add(2, IF4)
    singles = [ip_interface("10.1.0.9/32"), ip_interface("fd00:1::9/128")]
    for single in singles:
        network.addresses.lend(2, single, 60)
        network.addresses.lend(2, single, 1)
    lent = [address for address in ours(network.addresses.list(2)) if address.lent]
    assert lent == [Address(2, single, PROTOCOL, lent=True) for single in singles]
    eventually(lambda: [address.interface for address in ours(network.addresses.list(2))] == [IF4], 20)


def test_addresses_are_listed_for_one_link_or_for_all(kernel, pod):
    network, _ = pod()
    network.links.add(Bridge("br0", up=True))
    bridge = network.links.get("br0").ifindex
    network.addresses.add(2, IF4)
    network.addresses.add(bridge, ip_interface("10.2.0.1/16"))
    assert [our.ifindex for our in ours(network.addresses.list(bridge))] == [bridge]
    assert {our.ifindex for our in ours(network.addresses.list())} == {2, bridge}


def test_a_loopback_that_comes_up_has_its_addresses(kernel, host):
    network, _ = host("a")
    network.links.change("lo", up=True)
    found = {str(address.interface) for address in network.addresses.list(1)}
    assert found == {"127.0.0.1/8", "::1/128"}
    assert all(address.protocol != PROTOCOL for address in network.addresses.list(1))


@pytest.mark.parametrize("interface", [IF4, IF6], ids=str)
def test_an_address_is_given_to_a_link_once(kernel, pod, interface):
    network, _ = pod()
    network.addresses.add(2, interface)
    with pytest.raises(errors.AddressExists):
        network.addresses.add(2, interface)


def test_an_ipv4_address_may_have_a_second_prefix_and_an_ipv6_address_may_not(kernel, pod):
    network, _ = pod()
    network.addresses.add(2, IF4)
    network.addresses.add(2, ip_interface("10.1.0.5/32"))
    network.addresses.add(2, IF6)
    with pytest.raises(errors.AddressExists):
        network.addresses.add(2, ip_interface("fd00:1::5/128"))


@pytest.mark.parametrize("interface", [IF4, IF6], ids=str)
def test_an_address_goes_once_and_with_it_its_route(kernel, pod, interface):
    network, _ = pod()
    network.addresses.add(2, interface)
    assert [item.destination for item in sane(network.routes.list(interface.version))] == [interface.network]
    network.addresses.delete(2, interface)
    assert ours(network.addresses.list(2)) == []
    assert sane(network.routes.list(interface.version)) == []
    with pytest.raises(errors.NoSuchAddress) as failed:
        network.addresses.delete(2, interface)
    assert failed.value.operation == f"delete address {interface} of link 2"


def test_the_first_ipv4_address_of_a_network_takes_the_later_ones_with_it(kernel, pod):
    network, _ = pod()
    for name in ("10.1.0.5/24", "10.1.0.6/24", "10.9.0.1/24"):
        network.addresses.add(2, ip_interface(name))
    network.addresses.delete(2, ip_interface("10.1.0.5/24"))
    assert [str(our.interface) for our in ours(network.addresses.list(2))] == ["10.9.0.1/24"]


def test_a_later_ipv4_address_goes_alone(kernel, pod):
    network, _ = pod()
    for name in ("10.1.0.5/24", "10.1.0.6/24"):
        network.addresses.add(2, ip_interface(name))
    network.addresses.delete(2, ip_interface("10.1.0.6/24"))
    assert [str(our.interface) for our in ours(network.addresses.list(2))] == ["10.1.0.5/24"]
    assert [item.destination for item in sane(network.routes.list(4))] == [IF4.network]


def test_a_link_that_is_not_there_has_no_addresses(kernel, pod):
    network, _ = pod()
    for call in (network.addresses.add, network.addresses.delete):
        with pytest.raises(errors.NoSuchLink):
            call(77, IF4)


def test_an_address_without_a_prefix_route_brings_none(kernel, pod):
    network, _ = pod()
    network.addresses.add(2, IF4, prefix_route=False)
    network.addresses.add(2, IF6, prefix_route=False)
    assert sane(network.routes.list(4)) == []
    assert sane(network.routes.list(6)) == []


def test_connected_addresses_are_reachable(kernel, pod):
    network, _ = pod()
    network.addresses.add(2, IF4)
    network.addresses.add(2, IF6)
    assert sane(network.routes.list(4)) == [Route(IF4.network, None, 2, IF4.ip, scope=253, protocol=2)]
    assert sane(network.routes.list(6)) == [Route(IF6.network, None, 2, metric=256, scope=0, protocol=2)]


def test_default_routes_are_there_as_ours(kernel, pod, reported):
    network, path = pod()
    network.addresses.add(2, IF4)
    network.addresses.add(2, IF6)
    network.routes.add(Route(ALL4, GW4, 2, mtu=1400, advmss=1300, metric=7))
    network.routes.add(Route(ALL6, GW6, 2))
    four = Route(ALL4, GW4, 2, metric=7, mtu=1400, advmss=1300, scope=0, protocol=PROTOCOL)
    six = Route(ALL6, GW6, 2, metric=1024, scope=0, protocol=PROTOCOL)
    assert [route for route in network.routes.list(4) if route.protocol == PROTOCOL] == [four]
    assert [route for route in network.routes.list(6) if route.protocol == PROTOCOL] == [six]
    (seen,) = reported("ip", "-j", "route", "show", "default", netns=path)
    assert (seen["gateway"], seen["dev"], seen["protocol"], seen["metric"]) == (
        "10.1.0.1",
        "eth0",
        str(PROTOCOL),
        7,
    )
    assert seen["metrics"] == [{"mtu": 1400, "advmss": 1300}]
    (seen,) = reported("ip", "-j", "-6", "route", "show", "default", netns=path)
    assert (seen["gateway"], seen["protocol"]) == ("fd00:1::1", str(PROTOCOL))


def test_a_route_finds_its_link_by_its_gateway(kernel, pod):
    network, _ = pod()
    network.addresses.add(2, IF4)
    network.addresses.add(2, IF6)
    network.routes.add(Route(ALL4, GW4))
    network.routes.add(Route(ALL6, GW6))
    found = [route for family in (4, 6) for route in network.routes.list(family) if route.gateway]
    assert [item.ifindex for item in found] == [2, 2]


@pytest.mark.parametrize(("all_", "gateway"), [(ALL4, GW4), (ALL6, GW6)], ids=["IPv4", "IPv6"])
def test_a_route_is_added_once_and_replaced_any_time(kernel, pod, all_, gateway):
    network, _ = pod()
    network.addresses.add(2, IF4)
    network.addresses.add(2, IF6)
    network.routes.add(Route(all_, gateway, 2))
    with pytest.raises(errors.RouteExists):
        network.routes.add(Route(all_, gateway + 1, 2))
    network.routes.replace(Route(all_, gateway + 2, 2))
    network.routes.replace(Route(all_, gateway + 2, 2, metric=9))
    found = {(route.gateway, route.metric) for route in network.routes.list(all_.version) if route.gateway}
    assert found == {(gateway + 2, 0 if all_.version == 4 else 1024), (gateway + 2, 9)}


@pytest.mark.parametrize(("all_", "gateway"), [(ALL4, GW4), (ALL6, GW6)], ids=["IPv4", "IPv6"])
def test_unreachable_gateway_is_refused_unless_it_is_on_link(kernel, pod, all_, gateway):
    network, _ = pod()
    network.addresses.add(2, ip_interface("192.0.2.1/32"))  # without any, IPv4 takes no gateway at all
    with pytest.raises(errors.Unreachable) as failed:
        network.routes.add(Route(all_, gateway, 2))
    assert failed.value.operation == f"add route {all_} via {gateway} on link 2"
    network.routes.add(Route(all_, gateway, 2, onlink=True))
    (found,) = [route for route in network.routes.list(all_.version) if route.gateway]
    assert (found.gateway, found.onlink) == (gateway, True)


def test_a_gateway_is_reached_by_its_own_route(kernel, pod):
    """As ptp has it: a route to the gateway alone, then everything through it."""
    network, _ = pod()
    network.addresses.add(2, ip_interface("10.1.0.5/32"), prefix_route=False)
    network.routes.add(Route(ip_network("10.1.0.1/32"), None, 2, source=ip_address("10.1.0.5")))
    network.routes.add(Route(ALL4, GW4, 2))
    found = sane(network.routes.list(4))
    assert [(str(item.destination), item.scope) for item in found] == [("0.0.0.0/0", 0), ("10.1.0.1/32", 253)]


def test_a_route_with_a_source_that_is_not_here_is_refused(kernel, pod):
    network, _ = pod()
    with pytest.raises(errors.Refused):
        network.routes.add(Route(ip_network("10.9.0.0/16"), None, 2, source=ip_address("10.1.0.5")))


def test_routes_that_name_a_source_go_with_it(kernel, pod):
    network, _ = pod()
    network.addresses.add(2, IF4)
    network.routes.add(Route(ip_network("10.9.0.0/16"), None, 2, source=IF4.ip))
    network.addresses.delete(2, IF4)
    assert network.routes.list(4) == []


@pytest.mark.parametrize("version", [4, 6])
def test_a_route_on_a_link_that_is_down_or_missing_is_refused(kernel, pod, version):
    network, _ = pod()
    network.links.change(2, up=False)
    destination = ip_network("10.9.0.0/16" if version == 4 else "fd09::/16")
    with pytest.raises(errors.Unreachable):
        network.routes.add(Route(destination, None, 2))
    with pytest.raises(errors.NoSuchLink):
        network.routes.add(Route(destination, None, 77))


def test_routes_go_when_their_link_goes_down_and_the_connected_one_comes_back(kernel, pod):
    network, _ = pod()
    network.addresses.add(2, IF4)
    network.addresses.add(2, IF6)
    network.routes.add(Route(ALL4, GW4, 2))
    network.links.change(2, up=False)
    assert sane(network.routes.list(4)) == []
    assert sane(network.routes.list(6)) == []
    assert [our.interface for our in ours(network.addresses.list(2))] == [IF4], "IPv6 addresses go too"
    network.links.change(2, up=True)
    assert [item.destination for item in sane(network.routes.list(4))] == [IF4.network]


@pytest.mark.parametrize(("all_", "gateway"), [(ALL4, GW4), (ALL6, GW6)], ids=["IPv4", "IPv6"])
def test_deletion_compares_the_given_attributes(kernel, pod, all_, gateway):
    network, _ = pod()
    network.addresses.add(2, IF4)
    network.addresses.add(2, IF6)
    network.routes.add(Route(all_, gateway, 2, metric=5))
    network.routes.add(Route(all_, gateway, 2, metric=6, protocol=3))
    for wrong in (
        Route(all_, gateway + 1),
        Route(all_, None, 1),
        Route(all_, metric=7),
        Route(all_, metric=6),
        Route(all_, table=100),
    ):
        with pytest.raises(errors.NoSuchRoute):
            network.routes.delete(wrong)
    network.routes.delete(Route(all_))
    assert [route.metric for route in network.routes.list(all_.version) if route.gateway] == [6], (
        "another owner's stays"
    )
    network.routes.delete(Route(all_, protocol=3))


def test_tables_are_apart(kernel, pod):
    network, _ = pod()
    network.addresses.add(2, IF4)
    for table in (MAIN, 100, 70_000):
        network.routes.add(Route(ALL4, GW4, 2, table=table))
    for table in (100, 70_000):
        assert [route.table for route in network.routes.list(4, table)] == [table]
    assert network.routes.list(4, 101) == []
    found = {route.table for route in network.routes.list(4, None)} - {LOCAL}
    assert found == {MAIN, 100, 70_000}


def test_destination_can_be_unreachable(kernel, pod):
    network, _ = pod()
    network.routes.add(Route(ip_network("10.9.0.0/16"), kind="blackhole"))
    network.routes.add(Route(ip_network("fd09::/64"), kind="unreachable"))
    assert [item.kind for family in (4, 6) for item in sane(network.routes.list(family))] == [
        "blackhole",
        "unreachable",
    ]
    network.routes.delete(Route(ip_network("10.9.0.0/16"), kind="blackhole"))
    assert sane(network.routes.list(4)) == []


def test_rules_choose_tables(kernel, host, reported):
    network, path = host("a")
    first = [*network.rules.list(4), *network.rules.list(6)]
    assert [(item.priority, item.table) for item in first] == [
        (0, LOCAL), (32766, MAIN), (32767, 253), (0, LOCAL), (32766, MAIN),
    ]  # fmt: skip
    four = Rule(100, 1000, source=ip_network("10.1.0.5/32"), input="lo")
    six = Rule(101, 100, 6, destination=ip_network("fd00::/8"), mark=5, mask=0xFF)
    network.rules.add(four)
    network.rules.add(six)
    assert [rule for rule in network.rules.list(4) if rule.protocol == PROTOCOL] == [four]
    assert [rule for rule in network.rules.list(6) if rule.protocol == PROTOCOL] == [six]
    (seen,) = [item for item in reported("ip", "-j", "-d", "rule", netns=path) if item["priority"] == 100]
    assert (seen["src"], seen["iif"], seen["table"]) == ("10.1.0.5", "lo", "1000")
    with pytest.raises(errors.RuleExists):
        network.rules.add(four)
    network.rules.delete(four)
    with pytest.raises(errors.NoSuchRule):
        network.rules.delete(four)


def test_neighbours_are_set_and_forgotten(kernel, pod, reported):
    network, path = pod()
    four = Neighbour(2, GW4, "02:00:00:00:00:01")
    six = Neighbour(2, GW6, "02:00:00:00:00:02")
    network.neighbours.add(four)
    network.neighbours.add(six)
    with pytest.raises(errors.NeighbourExists):
        network.neighbours.add(four)
    changed = four._replace(mac="02:00:00:00:00:03")
    network.neighbours.replace(changed)
    assert sorted(network.neighbours.list(2), key=str) == sorted([changed, six], key=str)
    seen = {item["dst"]: (item["lladdr"], item["state"]) for item in reported("ip", "-j", "neigh", netns=path)}
    assert seen["10.1.0.1"] == ("02:00:00:00:00:03", ["PERMANENT"])
    network.neighbours.delete(2, GW4)
    assert network.neighbours.list() == [six]
    with pytest.raises(errors.NoSuchNeighbour):
        network.neighbours.delete(2, GW4)
    with pytest.raises(errors.NoSuchLink):
        network.neighbours.add(four._replace(ifindex=77))


def test_deleted_link_removes_its_routes_and_neighbours(kernel, host):
    network, _ = host("a")
    network.links.add(Veth("a0", "a1", up=True))
    network.links.change("a1", up=True)
    index = network.links.get("a0").ifindex
    network.addresses.add(index, IF4)
    network.routes.add(Route(ALL4, GW4, index))
    network.neighbours.add(Neighbour(index, GW4, "02:00:00:00:00:01"))
    network.links.delete("a1")
    assert (ours(network.addresses.list()), network.routes.list(4), network.neighbours.list()) == ([], [], [])


def test_a_moved_link_leaves_its_addresses_behind(kernel, host):
    (here, _), (there, other) = host("a"), host("b")
    here.links.add(Veth("a0", "a1", up=True))
    here.addresses.add(here.links.get("a0").ifindex, IF4)
    here.links.move("a0", other)
    assert ours(there.addresses.list()) == []


def test_a_batch_makes_its_changes_together(kernel, host):
    (here, _), (pod, path) = host("a"), host("b")
    here.links.add(Veth("p1", "eth0", path, 2, up=True))
    with pod.batch() as batch:
        batch.links.change(1, up=True)
        batch.links.change(2, up=True)
        batch.addresses.add(2, IF4)
        batch.addresses.add(2, IF6)
        batch.routes.add(Route(ALL4, GW4, 2))
        batch.routes.add(Route(ALL6, GW6, 2))
        assert ours(pod.addresses.list(2)) == [], "nothing happens before the end of the block"
    assert [our.interface for our in ours(pod.addresses.list(2))] == [IF4, IF6]
    assert [route.gateway for family in (4, 6) for route in pod.routes.list(family) if route.gateway] == [GW4, GW6]


def test_batch_continues_after_an_error_and_reports_all(kernel, host):
    network, _ = host("a")

    def run_batch():
        with network.batch() as batch:
            batch.links.change(1, up=True)
            batch.addresses.add(77, IF4)
            batch.links.change("eth7", up=True)
            batch.addresses.add(1, IF4)

    with pytest.raises(errors.NoSuchLink, match=r"add address 10.1.0.5/24 to link 77") as failed:
        run_batch()
    assert [item.split(":")[:2] for item in failed.value.__notes__] == [["also", " change link eth7"]]
    assert IF4 in [address.interface for address in network.addresses.list(1)]


def test_batch_sends_changes_before_a_query(kernel, host):
    network, _ = host("a")
    with network.batch() as batch:
        batch.links.add(Bridge("br0"))
        assert batch.links.get("br0").kind == "bridge"


def test_abandoned_batch_changes_nothing(kernel, host):
    (network, _), (_, other) = host("a"), host("b")

    def given_up():
        with network.batch() as batch:
            batch.links.add(Veth("a0", "a1", other))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        given_up()
    assert [link.name for link in network.links.list()] == ["lo"]


def test_a_large_batch_is_not_lost_in_buffers(kernel, host):
    network, _ = host("a")
    network.links.add(Bridge("br0", up=True))
    index = network.links.get("br0").ifindex
    with network.batch() as batch:
        for number in range(300):
            batch.addresses.add(index, ip_interface(f"10.{number // 100}.{number % 100}.1/24"))
    assert len(ours(network.addresses.list(index))) == 300
