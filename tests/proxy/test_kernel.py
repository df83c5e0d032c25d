"""The rules in the kernel, with real sockets in network namespaces."""

import select
import socket
import struct
import subprocess
from collections import Counter
from ipaddress import ip_address, ip_network

import pytest

from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.proc.namespaces import visit
from podwire.proxy.audit import Audit
from podwire.proxy.conntrack import UDP, stale
from podwire.proxy.kernel import SETS
from podwire.proxy.node_sysctls import has_sctp
from podwire.proxy.program import TABLE, TARGETS
from podwire.proxy.values import PROTOCOLS, Port
from tests.eventually import eventually
from tests.nriplugins.network.policy.support import opened, sctp_init
from tests.proxy.objects import ENDING, NAME, service, slice_
from tests.proxy.world import SETTINGS

VIPS = {4: "10.96.0.10", 6: "fd00:96::10"}
BOTH = tuple(VIPS.values())
PORTS = (("", 6, 8080), ("udp", 17, 8080))
BALANCER = "10.99.0.1"
SCTP = PROTOCOLS["SCTP"]


def put(world, *names: str, version: int = 4, given=None, state: int = 3, tell: bool = True) -> None:
    """A Service with these endpoints."""
    chosen = given if given is not None else service(cluster_ips=BOTH, ports=(Port("", 6, 80), Port("udp", 17, 80)))
    world.model.put_service(NAME, chosen)
    for number in (4, 6):
        endpoints = [world.endpoint(name, number, state=state) for name in names]
        world.model.put_slice(("default", f"slice{number}"), slice_(*endpoints, ports=PORTS, version=number))
    if tell:
        world.tell()


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("client", ["a", "outside", "node", "remote"])
def test_connections_are_spread_over_all_endpoints(world, version, client):
    put(world, "a", "b", "remote")
    servers = Counter(world.ask(client, VIPS[version])[0] for _ in range(60))
    assert servers.keys() == {"a", "b", "remote"}
    assert min(servers.values()) >= 5  # of 20 on average


@pytest.mark.parametrize("version", [4, 6])
def test_a_pod_sees_the_address_of_another_pod_and_its_gateway_instead_of_its_own(world, version):
    put(world, "b")
    assert world.ask("a", VIPS[version]) == ("b", world.ip("a", version))
    assert world.ask("b", VIPS[version]) == ("b", "10.1.0.1" if version == 4 else "fd00:1::1")


@pytest.mark.parametrize("version", [4, 6])
def test_clients_outside_of_the_pod_network_are_masqueraded(world, version):
    put(world, "b", "remote")
    seen = dict(world.ask("outside", VIPS[version]) for _ in range(40))
    gateways = {"b": "10.1.0.1", "remote": "10.3.0.1"} if version == 4 else {"b": "fd00:1::1", "remote": "fd00:3::1"}
    assert seen == gateways


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("client", ["a", "outside", "node"])
def test_a_service_without_endpoints_and_an_unknown_port_refuse_at_once(world, version, client):
    put(world)
    for port in (80, 81):
        with pytest.raises(ConnectionRefusedError):
            world.ask(client, VIPS[version], port)


@pytest.mark.parametrize("version", [4, 6])
def test_datagrams_to_a_service_without_endpoints_are_refused(world, version):
    put(world)
    with world.datagram("a", VIPS[version]) as datagrams:
        datagrams.send(b"x")
        with pytest.raises(ConnectionRefusedError):
            datagrams.recv(100)


def test_endpoints_come_and_go(world):
    put(world, "a")
    assert world.ask("b", VIPS[4])[0] == "a"
    put(world, "a", "c")
    assert {world.ask("b", VIPS[4])[0] for _ in range(40)} == {"a", "c"}
    put(world, "c")
    assert {world.ask("b", VIPS[4])[0] for _ in range(10)} == {"c"}
    put(world)
    with pytest.raises(ConnectionRefusedError):
        world.ask("b", VIPS[4])
    world.model.put_service(NAME, None)
    world.tell()
    assert all(not world.kernel.list(name) for name in SETS if name != TARGETS)


NODE_PORT = Port("", 6, 80, 30080)


@pytest.mark.parametrize("version", [4, 6])
def test_a_node_port_is_served_at_each_address_of_the_node(world, version):
    put(world, "b", "remote", given=service(cluster_ips=BOTH, ports=(NODE_PORT,)))
    own = ("10.1.0.1", "10.2.0.1", "10.3.0.1") if version == 4 else ("fd00:1::1", "fd00:2::1", "fd00:3::1")
    for address in own:
        assert {world.ask("outside", address, 30080)[0] for _ in range(30)} == {"b", "remote"}
    with pytest.raises(ConnectionRefusedError):
        world.ask("node", "127.0.0.1" if version == 4 else "::1", 30080)


@pytest.mark.parametrize("version", [4, 6])
def test_external_policy_local_keeps_the_address_of_the_client_and_the_endpoint_on_the_node(world, version):
    given = service(cluster_ips=BOTH, ports=(NODE_PORT,), external_local=True)
    put(world, "b", "remote", given=given)
    address = "10.2.0.1" if version == 4 else "fd00:2::1"
    assert {world.ask("outside", address, 30080) for _ in range(20)} == {("b", world.ip("outside", version))}
    # pods and the node itself are not outside: they reach all endpoints
    assert {world.ask("a", address, 30080)[0] for _ in range(30)} == {"b", "remote"}
    assert {world.ask("node", address, 30080)[0] for _ in range(30)} == {"b", "remote"}
    put(world, "remote", given=given)
    with pytest.raises(TimeoutError):
        world.ask("outside", address, 30080)
    assert world.ask("a", address, 30080)[0] == "remote"


def test_external_policy_local_falls_back_to_endpoints_that_terminate(world):
    given = service(ports=(NODE_PORT,), external_local=True)
    put(world, "b", given=given, state=ENDING)
    assert world.ask("outside", "10.2.0.1", 30080)[0] == "b"


def test_internal_policy_local_drops_what_nobody_here_serves(world):
    given = service(internal_local=True)
    put(world, "a", "remote", given=given)
    assert {world.ask("b", VIPS[4])[0] for _ in range(20)} == {"a"}
    put(world, "remote", given=given)
    with pytest.raises(TimeoutError):
        world.ask("b", VIPS[4])


@pytest.mark.parametrize("version", [4, 6])
def test_a_client_stays_with_its_endpoint_until_it_goes(world, version):
    put(world, "a", "b", "remote", given=service(cluster_ips=BOTH, affinity=100))
    servers = {world.ask("c", VIPS[version])[0] for _ in range(15)}
    assert len(servers) == 1
    rest = {"a", "b", "remote"} - servers
    put(world, *rest, given=service(cluster_ips=BOTH, affinity=100))
    others = {world.ask("c", VIPS[version])[0] for _ in range(15)}
    assert len(others) == 1
    assert others < rest


def test_a_client_keeps_its_endpoint_when_the_table_is_put_again(world):
    put(world, "a", "b", "remote", given=service(affinity=100))
    before = world.ask("c", VIPS[4])[0]
    for _ in range(5):
        world.kernel.replace(world.model.everything(), SETTINGS)
        assert world.ask("c", VIPS[4])[0] == before


def test_a_client_that_pauses_may_get_another_endpoint(world):
    put(world, "a", "b", "remote", given=service(affinity=1))
    world.ask("c", VIPS[4])
    assert len(world.kernel.list("affinity4")) == 1
    eventually(lambda: not world.kernel.list("affinity4"))


def test_an_address_of_the_load_balancer_is_only_for_its_sources(world):
    given = service(balancer_ips=(BALANCER,), sources=(ip_network("10.2.0.0/24"),))
    put(world, "b", given=given)
    assert world.ask("outside", BALANCER)[0] == "b"
    with pytest.raises(TimeoutError):
        world.ask("remote", BALANCER)
    put(world, "b", given=given._replace(sources=()))
    assert world.ask("remote", BALANCER)[0] == "b"


def test_datagrams_go_on_to_another_endpoint_when_theirs_has_gone(world):
    put(world, "a", "remote")
    connections = KernelConntrack(world.node)
    try:
        with world.datagram("c", VIPS[4]) as datagrams:
            datagrams.send(b"x")
            first = datagrams.recv(100).split()[0].decode()
            put(world, *({"a", "remote"} - {first}), tell=False)
            difference = world.model.difference()
            world.kernel.change(difference.deleted, difference.added)
            datagrams.send(b"x")
            assert datagrams.recv(100).split()[0].decode() == first  # the connection is still known
            old = stale(4, difference.datagrams, connections.translations(4, UDP))
            assert connections.delete(4, old) == 1
            datagrams.send(b"x")
            assert datagrams.recv(100).split()[0].decode() != first
    finally:
        connections.close()


def nft(world, *arguments: str) -> str:
    with visit(world.node):
        done = subprocess.run(["nft", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "meddling",
    [("flush", "ruleset"), ("flush", "table", "inet", TABLE), ("flush", "map", "inet", TABLE, "frontends4")],
    ids=lambda words: " ".join(words[:2]),
)
def test_it_is_noticed_when_others_flush_the_table(world, meddling):
    put(world, "a")
    audit = Audit(world.kernel, world.model)
    assert audit.look()
    nft(world, *meddling)
    assert not audit.look()
    world.kernel.replace(world.model.everything(), SETTINGS)
    assert audit.look()
    assert world.ask("b", VIPS[4])[0] == "a"


HOST_PORTS = """
table inet host-ports {
  chain prerouting { type nat hook prerouting priority dstnat; fib daddr type local dnat ip to tcp dport map @ports; }
  chain output { type nat hook output priority -100; fib daddr type local dnat ip to tcp dport map @ports; }
  map ports { type inet_service : ipv4_addr . inet_service; elements = { 30080 : 10.1.0.13 . 8080 }; }
}
"""


@pytest.mark.parametrize("is_first", [True, False], ids=["host ports first", "host ports last"])
def test_a_node_port_wins_over_a_host_port_of_the_same_number(world, is_first):
    world.kernel.remove()
    try:
        if is_first:
            nft(world, HOST_PORTS)
        world.kernel.replace([], SETTINGS)
        if not is_first:
            nft(world, HOST_PORTS)
        assert world.ask("outside", "10.2.0.1", 30080)[0] == "c"
        put(world, "b", given=service(ports=(NODE_PORT,)))
        for client in ("outside", "node", "a"):
            assert {world.ask(client, "10.2.0.1", 30080)[0] for _ in range(5)} == {"b"}
        put(world, "b", given=service())
        assert world.ask("outside", "10.2.0.1", 30080)[0] == "c", "without a node port the host port is there"
    finally:
        nft(world, "delete", "table", "inet", "host-ports")


@pytest.mark.skipif(not has_sctp(), reason="the kernel does not follow SCTP connections")
@pytest.mark.parametrize("version", [4, 6])
def test_sctp_packets_reach_an_endpoint_with_its_address_and_port(world, version):
    given = service(cluster_ips=BOTH, ports=(Port("sctp", SCTP, 80),))
    world.model.put_service(NAME, given)
    endpoint = slice_(world.endpoint("b", version), ports=(("sctp", SCTP, 8080),), version=version)
    world.model.put_slice(("default", "slice"), endpoint)
    world.tell()
    source, server, vip = (ip_address(text) for text in (world.ip("a", version), world.ip("b", version), VIPS[version]))
    with opened(world.paths["b"], server, socket.SOCK_RAW, 0, SCTP) as listener:
        with opened(world.paths["a"], source, socket.SOCK_RAW, 0, SCTP) as sender:
            sender.sendto(sctp_init(40001, 80), (str(vip), 0))
        select.select([listener], [], [], 5)
        packet = listener.recv(200)
    ports = packet[20:24] if version == 4 else packet[:4]  # raw sockets have the header of IPv4 only
    assert struct.unpack(">HH", ports) == (40001, 8080)


def test_tables_of_others_are_left_alone_and_nft_can_show_ours(world):
    nft(world, "add table inet other; add set inet other s { type ipv4_addr; elements = { 192.0.2.1 }; }")
    affine = service(cluster_ips=BOTH, affinity=100, external_ips=("192.0.2.7",), external_local=True)
    put(world, "a", "b", given=affine)
    assert "192.0.2.1" in nft(world, "list", "ruleset")
    assert "dnat" in nft(world, "list", "table", "inet", TABLE)
    world.kernel.replace(world.model.everything(), SETTINGS)
    assert world.kernel.remove()
    assert "192.0.2.1" in nft(world, "list", "ruleset")
    assert TABLE not in nft(world, "list", "tables")
    world.kernel.replace(world.model.everything(), SETTINGS)
    nft(world, "delete", "table", "inet", "other")


def test_chains_that_nobody_uses_any_more_are_deleted(world):
    put(world, "a", "b", given=service(affinity=100, external_ips=("192.0.2.7",), external_local=True))
    put(world, "a", given=service())
    world.kernel.delete_unused()
    listed = nft(world, "list", "chains", "inet")
    assert "cluster4-1 " in listed
    assert "for-100" not in listed


def test_established_connections_outlive_a_table_that_is_put_again(world):
    put(world, "a")
    with world.datagram("b", VIPS[4]) as datagrams:
        for _ in range(3):
            datagrams.send(b"x")
            assert datagrams.recv(100).startswith(b"a")
            world.kernel.replace(world.model.everything(), SETTINGS)
