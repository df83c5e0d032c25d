"""Views of nodes and resources: which route is chosen, which ends are a wire, what NRI plugins took."""

from ipaddress import ip_address, ip_network

import pytest

from podwire.linux.values import Link, Route
from podwire.web.node_map import peers
from podwire.web.packet_path import best_route
from podwire.web.resources import nri_plugins
from tests.trace.conftest import reported
from tests.web.conftest import recorded

ROUTES = [
    Route(ip_network("0.0.0.0/0"), gateway=ip_address("10.0.0.1"), ifindex=2),
    Route(ip_network("10.1.0.0/16"), ifindex=3, metric=50),
    Route(ip_network("10.1.0.0/16"), ifindex=4, metric=10),
    Route(ip_network("fd00::/8"), ifindex=5),
]


@pytest.mark.parametrize(
    ("to", "link"),
    [("10.1.2.3", 4), ("192.0.2.1", 2), ("fd00::1", 5), ("2001:db8::1", None)],
    ids=["the longest prefix, the lowest metric", "the default", "the other family", "no route"],
)
def test_the_route_of_a_packet(to, link):
    route = best_route(ROUTES, ip_address(to))
    assert (route.ifindex if route else None) == link


def veth(ifindex: int, peer: int, peer_netns: int | None = 0) -> Link:
    return Link(ifindex, "v", "veth", "", 1500, True, "up", peer=peer, peer_netns=peer_netns)


def test_two_links_are_a_wire_if_each_is_the_peer_of_the_other():
    assert peers(veth(7, 2), veth(2, 7))
    assert not peers(veth(7, 2), veth(3, 7))
    assert not peers(veth(7, 2, None), veth(2, 7)), "its peer is in its own namespace"


def test_nri_plugins_are_shown_with_budget_and_last_calls():
    [plugin] = nri_plugins([reported(recorded("nri"), "db")])
    assert plugin["plugin"] == "NetworkPlugin"
    assert plugin["budget"] == 2.0
    assert 0 < plugin["slowest"] < plugin["budget"]
    assert all(call["method"].startswith("NRI ") for call in plugin["last"])
