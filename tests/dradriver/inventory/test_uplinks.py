"""The links that the host needs, by its routes and by what stands on what."""

from ipaddress import ip_address, ip_network

import pytest

from podwire.dradriver.inventory.uplinks import needed, uplinks
from podwire.linux.values import Link, Route

FOUR, SIX = ip_network("0.0.0.0/0"), ip_network("::/0")


def out(index: int, metric: int = 0, *, six: bool = False, **more) -> Route:
    return Route(SIX if six else FOUR, ip_address("fe80::1" if six else "192.0.2.1"), index, metric=metric, **more)


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        pytest.param([], set(), id="no routes"),
        pytest.param([Route(ip_network("10.0.0.0/8"), None, 2)], set(), id="no default route"),
        pytest.param([out(2)], {2}, id="one default route"),
        pytest.param([out(2, 100), out(3, 200)], {2}, id="the lower metric wins"),
        pytest.param([out(3, 200), out(2, 100)], {2}, id="whatever the order"),
        pytest.param([out(2, 100), out(3, 100)], {2, 3}, id="a tie is both"),
        pytest.param([out(2), out(3)], {2, 3}, id="two paths of one route are both"),
        pytest.param([out(2, 1024, six=True)], {2}, id="IPv6 alone"),
        pytest.param([out(2, 100), out(3, 1024, six=True)], {2, 3}, id="each family has its own"),
        pytest.param([out(2, 100), out(3, 50, six=True), out(2, 60, six=True)], {2, 3}, id="and its own metrics"),
        pytest.param([out(2, table=100)], set(), id="another table does not count"),
        pytest.param([out(2, 4294967295, six=True, kind="unreachable")], set(), id="unreachable leads nowhere"),
        pytest.param([out(0)], set(), id="a route to no link"),
        pytest.param([Route(FOUR, None, 2), out(3, 10)], {2}, id="one without a gateway is a way out too"),
        pytest.param([Route(ip_network("0.0.0.0/1"), None, 2), out(3)], {3}, id="half of everything is not everything"),
    ],
)
def test_uplinks_are_the_default_routes_of_the_lowest_metric(routes, expected):
    assert uplinks(routes) == expected


def link(index: int, kind: str = "", **more) -> Link:
    return Link(index, f"l{index}", kind, f"02:00:00:00:00:{index:02x}", 1500, True, "up", **more)


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param([link(2), link(3)], {2}, id="another link is free"),
        pytest.param([link(2, "bridge"), link(3, master=2), link(4, master=2)], {2, 3, 4}, id="ports of an uplink"),
        pytest.param([link(2, "bridge"), link(3, "bond", master=2), link(4, master=3)], {2, 3, 4}, id="ports of ports"),
        pytest.param(
            [link(2, master=3), link(3, "bridge"), link(4, master=3)], {2, 3, 4}, id="the master of an uplink"
        ),
        pytest.param([link(2), link(3, "macvlan", peer=2)], {2}, id="what is made on an uplink is free"),
        pytest.param([link(2, "vlan", peer=3), link(3), link(4)], {2, 3}, id="what an uplink is made on is not"),
        pytest.param(
            [link(2, "vlan", peer=3), link(3, "bond"), link(4, master=3)], {2, 3, 4}, id="and what that is of"
        ),
        pytest.param([link(2, "veth", peer=3), link(3, "veth", peer=2)], {2, 3}, id="the other end of an uplink"),
        pytest.param([link(2, "veth", peer=3, peer_netns=0), link(3)], {2}, id="which may be elsewhere"),
        pytest.param(
            [link(2, "bridge"), link(3, "veth", master=2, peer=4), link(4, "veth", peer=3)],
            {2, 3},
            id="the other end of a port is free",
        ),
        pytest.param([link(3)], set(), id="an uplink that is gone"),
        pytest.param([link(2, master=3), link(3, master=2)], {2, 3}, id="a ring ends"),
    ],
)
def test_uplink_needs_its_ports_its_masters_and_the_links_below(links, expected):
    assert needed({link.ifindex: link for link in links}, {2}) == expected
