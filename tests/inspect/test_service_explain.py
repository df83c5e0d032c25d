"""Explanations of Services, by the tables of real kernels."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest

from podwire.inspect.service_explain import Asked, CannotExplain, destination
from podwire.inspect.service_rules import Destination, Way, follow
from podwire.proxy.values import Port
from tests.proxy.objects import NAME, service, slice_
from tests.proxy.world import World

VIP, VIP6, EXTERNAL, BALANCER = "10.96.0.10", "fd00:96::10", "192.0.2.7", "192.0.2.8"
NODE_PORT = 30080


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()


@pytest.fixture
def world(shared_world) -> World:
    shared_world.clear()
    return shared_world


def put(world: World, *names: str, **fields) -> None:
    given = service(
        cluster_ips=(VIP, VIP6),
        ports=(Port("", 6, 80, NODE_PORT), Port("udp", 17, 80)),
        external_ips=(EXTERNAL,),
        balancer_ips=(BALANCER,),
        **fields,
    )
    world.model.put_service(NAME, given)
    for version in (4, 6):
        endpoints = [world.endpoint(name, version) for name in names]
        ports = (("", 6, 8080), ("udp", 17, 8080))
        world.model.put_slice(("default", f"slice{version}"), slice_(*endpoints, ports=ports, version=version))
    world.tell()


def way(
    world: World, address: str, port: int = 80, client: str = "", protocol: str = "TCP", inside: bool = True
) -> Way:
    to = Destination(ip_address(address), protocol, port, is_node_port=port == NODE_PORT)
    return follow(world.kernel, to, ip_address(client) if client else None, is_inside=inside)


def targets(found: Way) -> list[tuple[str, int]]:
    return [(str(address), port) for address, port in found.endpoints]


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_a_cluster_address_leads_to_its_endpoints(world, protocol):
    put(world, "a", "remote")
    found = way(world, VIP, protocol=protocol)
    assert targets(found) == [("10.1.0.11", 8080), ("10.3.0.10", 8080)]
    assert [(step.where, step.verdict) for step in found.steps] == [
        ("podwire-proxy services, frontends4", "goto cluster4-2"),
        ("podwire-proxy cluster4-2", "dnat to 10.1.0.11:8080, 10.3.0.10:8080"),
    ]
    assert found.steps[1].what == "one of 2 endpoints, at random"
    assert targets(way(world, VIP6, protocol=protocol)) == [("fd00:1::11", 8080), ("fd00:3::10", 8080)]


def test_a_node_port_and_an_external_address_are_masqueraded(world):
    put(world, "a")
    for address, port in ((EXTERNAL, 80), (BALANCER, 80), ("10.2.0.1", NODE_PORT)):
        found = way(world, address, port)
        assert targets(found) == [("10.1.0.11", 8080)]
        assert found.is_masqueraded
    assert not way(world, VIP).is_masqueraded


def test_with_the_external_policy_local_clients_elsewhere_get_endpoints_of_the_node(world):
    put(world, "a", "remote", external_local=True)
    for address, port, chain in ((EXTERNAL, 80, "external-local4-2-1"), ("10.2.0.1", NODE_PORT, "node-local4-2-1")):
        inside, outside = (way(world, address, port, inside=inside) for inside in (True, False))
        assert (len(inside.endpoints), targets(outside)) == (2, [("10.1.0.11", 8080)])
        assert outside.steps[-1].where == f"podwire-proxy {chain}"
        assert outside.steps[-1].what == "a client elsewhere: one of 1 endpoints, at random"
        assert not outside.is_masqueraded
    put(world, "remote", external_local=True)
    dropped = way(world, EXTERNAL, inside=False)
    assert (dropped.endpoints, dropped.steps[-1].verdict) == ([], "dropped")
    assert targets(way(world, EXTERNAL)) == [("10.3.0.10", 8080)]


def test_nobody_behind_an_address_is_explained(world):
    put(world)
    refused = way(world, VIP).steps
    assert [(step.where, step.verdict) for step in refused] == [
        ("podwire-proxy refused4", "rejected, nobody is behind it")
    ]
    put(world, "remote", internal_local=True)
    assert [step.where for step in way(world, VIP).steps] == ["podwire-proxy dropped4"]
    assert way(world, "10.96.0.99").steps[-1].verdict == "no rule: the proxy does not know it"


def test_affinity_and_source_ranges_are_explained(world):
    put(world, "a", affinity=100, sources=(ip_network("10.2.0.0/24"),))
    assert way(world, VIP).steps[-1].what == "one of 1 endpoints, the same for 100 s"
    allowed, denied = (way(world, BALANCER, client=client) for client in ("10.2.0.10", "10.3.0.10"))
    assert allowed.steps[0].what == f"only for 10.2.0.0/24, {BALANCER}/32"
    assert targets(allowed) == [("10.1.0.11", 8080)]
    assert ([step.verdict for step in denied.steps], denied.endpoints) == (["dropped"], [])


SERVICE = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "clusterIP": VIP,
        "clusterIPs": [VIP, VIP6],
        "externalIPs": [EXTERNAL],
        "ports": [{"name": "http", "port": 80, "nodePort": NODE_PORT}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    },
    "status": {"loadBalancer": {"ingress": [{"ip": BALANCER}, {"hostname": "lb.example"}]}},
}
NODES = [ip_address("fd00:2::1"), ip_address("10.2.0.1")]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, (VIP, "TCP", 80, False)),
        ({"port": "dns"}, (VIP, "UDP", 53, False)),
        ({"address": "fd00:96:0::10"}, (VIP6, "TCP", 80, False)),
        ({"address": EXTERNAL}, (EXTERNAL, "TCP", 80, False)),
        ({"address": BALANCER}, (BALANCER, "TCP", 80, False)),
        ({"node_port": "n1"}, ("10.2.0.1", "TCP", NODE_PORT, True)),
        ({"node_port": "n1", "address": "fd00:2::1"}, ("fd00:2::1", "TCP", NODE_PORT, True)),
    ],
    ids=str,
)
def test_the_destination_is_one_of_the_addresses_of_the_service(asked, expected):
    address, *rest = expected
    assert destination(SERVICE, Asked(service="web", **asked), NODES) == (ip_address(address), *rest)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"port": "81"}, 'service web has no port "81"'),
        ({"address": "x"}, "--address x: must be an IP address"),
        ({"address": "10.2.0.1"}, f"--address 10.2.0.1: service web has only {VIP}, {VIP6}, {EXTERNAL}, {BALANCER}"),
        ({"node_port": "n1", "port": "dns"}, "port 53 of service web has no node port"),
        ({"node_port": "n1", "address": VIP}, f"--address {VIP}: node n1 has only 10.2.0.1, fd00:2::1"),
    ],
    ids=str,
)
def test_what_cannot_be_explained_says_why(asked, message):
    with pytest.raises(CannotExplain) as caught:
        destination(SERVICE, Asked(service="web", **asked), NODES)
    assert str(caught.value) == message


def test_a_node_without_addresses_and_a_headless_service_cannot_be_explained():
    with pytest.raises(CannotExplain, match="node n9 has no address"):
        destination(SERVICE, Asked(service="web", node_port="n9"), ())
    headless = {**SERVICE, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    with pytest.raises(CannotExplain, match="service web has no cluster address: clients connect to its pods"):
        destination(headless, Asked(service="web"), ())
