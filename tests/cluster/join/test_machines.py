"""How pods of one machine reach those of others: decided from Nodes and the machine's own links."""

from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podwire.cluster.join.machines import MACHINE, MACHINE_NETWORKS, Hop, LocalLink, Machine, others, plan, tunnel_mtu
from podwire.cluster.join.settings import AUTO, ROUTES, VXLAN, BadSettings, ClusterSettings, from_data, to_data

CLUSTER = [ip_network("10.101.0.0/17"), ip_network("10.101.192.0/24"), ip_network("fd70:6f64:7701::/48")]
OWN = [ip_address("192.168.7.1")]
ETH0 = LocalLink(2, 1500, (ip_interface("192.168.7.1/24"),))
NEAR = Machine((ip_address("192.168.7.2"),), (ip_network("10.101.16.0/24"),))
FAR = Machine((ip_address("192.168.8.2"),), (ip_network("10.101.17.0/24"),))


def node(name, address, *networks, created="2026-01-01T00:00:00Z", **notes):
    return {
        "metadata": {"name": name, "creationTimestamp": created, "annotations": notes},
        "spec": {"podCIDRs": list(networks)},
        "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]},
    }


def test_a_node_is_a_machine_with_its_pods():
    nodes = [
        node("a", "192.168.7.1", "10.101.0.0/24"),
        node("b", "192.168.7.2", "10.101.16.0/24"),
        node("c", "192.168.7.3"),
    ]
    assert others(nodes, OWN, CLUSTER) == [NEAR]


def test_nodes_of_one_machine_are_reached_by_it():
    notes = {MACHINE: "192.168.7.1", MACHINE_NETWORKS: "10.101.192.0/24"}
    nodes = [
        node("node-1", "10.101.192.2", "10.101.0.0/24", **notes),
        node("node-2", "10.101.192.3", "10.101.1.0/24", **notes),
    ]
    (machine,) = others(nodes, [ip_address("192.168.7.2")], CLUSTER)
    assert machine.addresses == (ip_address("192.168.7.1"),)
    assert machine.networks == tuple(map(ip_network, ("10.101.0.0/24", "10.101.192.0/24", "10.101.1.0/24")))
    assert others(nodes, OWN, CLUSTER) == []


def test_a_node_whose_machine_is_not_known_yet_is_left_alone():
    assert others([node("node-1", "10.101.192.2", "10.101.0.0/24")], OWN, CLUSTER) == []


@pytest.mark.parametrize(
    "claimed",
    ["0.0.0.0/0", "192.168.7.0/24", "10.96.0.0/16", "10.101.0.0/24", "10.101.0.0/16", "10.101.16.128/25"],
    ids=["everything", "the segment", "others", "own pods", "around the cluster", "pods of an older node"],
)
def test_a_node_cannot_attract_packets_of_others(claimed):
    nodes = [
        node("own", "192.168.7.1", "10.101.0.0/24"),
        node("b", "192.168.7.2", "10.101.16.0/24"),
        node("evil", "192.168.7.9", "10.101.20.0/24", created="2026-01-02T00:00:00Z", **{MACHINE_NETWORKS: claimed}),
    ]
    evil = others(nodes, OWN, CLUSTER)[-1]
    assert evil.networks == (ip_network("10.101.20.0/24"),)


@pytest.mark.parametrize("address", ["", "no address", "10.101.16.0/24"])
def test_a_node_with_damaged_values_is_ignored(address):
    assert others([node("b", address, "10.101.16.0/24")], OWN, CLUSTER) == []
    assert others([node("b", "192.168.7.2", "no network")], OWN, CLUSTER) == []


def test_on_one_segment_there_are_routes_and_elsewhere_a_tunnel():
    result = plan([NEAR, FAR], [ETH0], AUTO)
    assert result.hops == (
        Hop(NEAR.networks[0], NEAR.addresses[0], 2),
        Hop(FAR.networks[0], FAR.addresses[0], None),
    )
    assert result.tunnels == (FAR,)
    assert plan([NEAR, FAR], [ETH0], VXLAN).tunnels == (NEAR, FAR)


def test_routes_alone_do_not_reach_another_segment():
    result = plan([NEAR, FAR], [ETH0], ROUTES)
    assert [hop.network for hop in result.hops] == list(NEAR.networks)
    assert result.problems == ("10.101.17.0/24 is behind 192.168.8.2, which is on no segment of this machine",)


def test_ipv6_pods_of_a_machine_without_an_ipv6_address_go_through_the_tunnel():
    sixth = ip_network("fd70:6f64:7701:1011::/64")
    machine = Machine(NEAR.addresses, (*NEAR.networks, sixth))
    result = plan([machine], [ETH0], AUTO)
    assert result.hops[1] == Hop(sixth, ip_address("fe80::858:c0ff:fea8:702"), None)
    both = Machine((*NEAR.addresses, ip_address("fd00::2")), (sixth,))
    link = LocalLink(2, 1500, (*ETH0.interfaces, ip_interface("fd00::1/64")))
    assert plan([both], [link], AUTO).hops == (Hop(sixth, ip_address("fd00::2"), 2),)


def test_a_tunnel_leaves_space_for_its_headers():
    assert tunnel_mtu(1500, 4) == 1450
    assert tunnel_mtu(9000, 6) == 8930


def test_settings_survive_the_config_map():
    settings = ClusterSettings(
        cluster_dns=("10.101.128.10",), networks=tuple(CLUSTER), backend=VXLAN, vni=7, network_policy=False
    )
    assert from_data(to_data(settings)) == settings
    assert from_data({}) == ClusterSettings()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"backend": "carrier-pigeon"}, "backend: 'carrier-pigeon' must be one of"),
        ({"networks": "10.0.0.1/8"}, "networks: "),
        ({"clusterDNS": "dns"}, "clusterDNS: "),
        ({"vni": "0"}, "vni: must be between"),
        ({"vni": "99999999"}, "vni: must be between"),
    ],
)
def test_damaged_settings_are_named(data, why):
    with pytest.raises(BadSettings, match=why):
        from_data(data)
