"""portmap, with real connections."""

import socket
import subprocess
from contextlib import suppress
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelElements, KernelRuleset
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Route

DUAL = ("10.88.0.0/24", "fd88::/64")
WEB = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}


@pytest.fixture
def map_ports(host):
    """Attach a pod and map ports to it; the configuration of portmap."""

    def attach(pod, *mappings, **keys):
        host.pod(pod)
        config = host.portmap(host.add(pod, host.bridge(*DUAL, hairpinMode=True, ipMasq=True)), *mappings, **keys)
        assert host.add(pod, config) == config["prevResult"]
        return config

    return attach


def test_host_port_leads_to_the_pod_from_everywhere(host, map_ports, serving, seen):
    config = map_ports("a", WEB)
    host.pod("b")
    host.add("b", host.bridge(*DUAL, hairpinMode=True, ipMasq=True))
    a, b = host.namespaces.path("a"), host.namespaces.path("b")
    with host.outside() as outside, serving(a, 80) as server:
        assert seen(server, outside, "192.0.2.1", 8080) == "192.0.2.2", "the pod sees who asks"
        assert seen(server, None, "192.0.2.1", 8080) is not None
        assert seen(server, None, "127.0.0.1", 8080) is not None
        assert seen(server, b, "10.88.0.1", 8080) is not None
        assert seen(server, b, "192.0.2.1", 8080) is not None
        assert seen(server, a, "10.88.0.1", 8080) is not None, "the pod reaches itself"
        host.check("a", config, config["prevResult"])
        host.delete("a", config)
        assert seen(server, outside, "192.0.2.1", 8080) is None


def test_host_port_leads_to_the_pod_by_ipv6(host, map_ports, serving, seen):
    map_ports("a", WEB)
    a = host.namespaces.path("a")
    with host.outside() as outside, serving(a, 80, 6) as server:
        assert seen(server, outside, "2001:db8::1", 8080) == "2001:db8::2"
        assert seen(server, None, "2001:db8::1", 8080) is not None
        assert seen(server, a, "fd88::1", 8080) is not None


def test_only_packets_for_this_host_are_redirected(host, map_ports, serving, seen):
    map_ports("a", WEB)
    host.pod("b")
    host.add("b", host.bridge(*DUAL, ipMasq=True))
    b = host.namespaces.path("b")
    with host.outside() as outside, serving(outside, 8080) as theirs, serving(outside, 8080, 6) as theirs6:
        assert seen(theirs, b, "192.0.2.2", 8080) == "192.0.2.1"
        assert seen(theirs6, b, "2001:db8::2", 8080) == "2001:db8::1"
        assert seen(theirs, None, "192.0.2.2", 8080) == "192.0.2.1"


def test_loopback_addresses_are_not_reachable_from_outside(host, map_ports, serving, seen):
    map_ports("a", WEB)
    with host.outside() as outside, serving(None, 9000) as private:
        KernelSysctls().write("net.ipv4.conf.wan.route_localnet", "1")
        KernelSysctls(outside).write("net.ipv4.conf.all.route_localnet", "1")
        with KernelNetwork(outside) as there:
            there.routes.add(Route(ip_network("127.9.9.9/32"), ip_address("192.0.2.1"), there.links.get("wan").ifindex))
        assert seen(private, outside, "127.9.9.9", 9000) is None


def test_host_ip_limits_a_mapping(host, map_ports, serving, seen):
    map_ports("a", WEB | {"hostIP": "192.0.2.1"})
    map_ports("b", WEB | {"hostIP": "192.0.2.9"})
    a, b = host.namespaces.path("a"), host.namespaces.path("b")
    with host.outside() as outside, serving(a, 80) as one, serving(b, 80) as other:
        with KernelNetwork() as here:
            here.addresses.add(here.links.get("wan").ifindex, ip_interface("192.0.2.9/24"))
        assert seen(one, outside, "192.0.2.1", 8080) == "192.0.2.2"
        assert seen(other, outside, "192.0.2.9", 8080) == "192.0.2.2"
        assert seen(one, None, "127.0.0.1", 8080) is None


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_unspecified_host_ip_is_any_address_of_its_family(host, map_ports, address):
    map_ports("a", WEB | {"hostIP": address})
    kernel = KernelElements(None, "podwire")
    found = {name: len(kernel.list(name)) for name in ("ports4", "ports6")}
    kernel.close()
    assert found == ({"ports4": 1, "ports6": 0} if address == "0.0.0.0" else {"ports4": 0, "ports6": 1})


def test_taken_port_is_an_error_with_its_owner(host, map_ports, refused, serving, seen):
    first = map_ports("a", WEB)
    host.pod("b")
    second = host.portmap(host.add("b", host.bridge(*DUAL)), WEB | {"hostPort": 9090}, WEB)
    with refused(100, "host port tcp 8080 belongs to a eth0"):
        host.add("b", second)
    with serving(host.namespaces.path("b"), 80) as server:
        assert seen(server, None, "127.0.0.1", 9090) is None, "of several ports none is mapped"
    host.check("a", first, first["prevResult"])
    host.delete("a", first)
    host.add("b", second)


def test_port_of_an_attachment_without_any_record_can_be_taken(host, map_ports):
    map_ports("a", WEB)
    for path in host.records.glob("*/net@a@*"):
        path.unlink()
    config = map_ports("b", WEB)
    host.check("b", config, config["prevResult"])


def test_repeated_add_maps_the_ports_once(host, map_ports):
    config = map_ports("a", WEB)
    before = sorted(element.split(" ", 1)[1] for element in host.left()["elements"])
    host.add("a", config)
    assert sorted(element.split(" ", 1)[1] for element in host.left()["elements"]) == before
    host.check("a", config, config["prevResult"])


@pytest.mark.parametrize("lost", ["runtimeConfig", "prevResult"])
def test_del_needs_neither_mappings_nor_prev_result(host, map_ports, lost):
    config = map_ports("a", WEB, WEB | {"protocol": "UDP"})
    del config[lost]
    host.delete("a", config, "")
    host.delete("a", host.bridge(*DUAL), "")
    assert host.left() == {}
    host.delete("a", config, "")


def test_pod_without_mappings_has_no_record(host, map_ports):
    config = map_ports("a")
    assert list(host.records.glob("portmap/*")) == []
    host.check("a", config, config["prevResult"])
    host.delete("a", config)


def test_capability_keys_are_case_insensitive(host, map_ports, serving, seen):
    map_ports("a", {"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""})
    with serving(host.namespaces.path("a"), 80) as server:
        assert seen(server, None, "127.0.0.1", 8080) is not None


def test_twenty_ports_of_a_pod_are_mapped(host, map_ports, serving, seen):
    map_ports(
        "a", *({"hostPort": 8000 + number, "containerPort": 80 + number, "protocol": "tcp"} for number in range(20))
    )
    with serving(host.namespaces.path("a"), 99) as server:
        assert seen(server, None, "127.0.0.1", 8019) is not None


def test_udp_reaches_the_pod_and_replies_return(host, map_ports, serving):
    map_ports("a", {"hostPort": 5353, "containerPort": 53, "protocol": "udp"})
    with host.outside() as outside, serving(host.namespaces.path("a"), 53, kind=socket.SOCK_DGRAM) as server:
        with visit(outside):
            client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with client:
            client.settimeout(2)
            client.connect(("192.0.2.1", 5353))
            client.send(b"ask")
            data, peer = server.recvfrom(100)
            server.sendto(b"answer", peer)
            assert (data, peer[0], client.recv(100)) == (b"ask", "192.0.2.2", b"answer")


def test_endless_udp_flow_reaches_the_next_pod(host, map_ports, serving):
    mapping = {"hostPort": 5353, "containerPort": 53, "protocol": "udp"}
    with host.outside() as outside, visit(outside):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with client:
        client.settimeout(2)
        client.connect(("192.0.2.1", 5353))
        for pod in "ab":
            with suppress(ConnectionRefusedError):
                client.send(b"to nobody")
                client.recv(100)
            config = map_ports(pod, mapping)
            with serving(host.namespaces.path(pod), 53, kind=socket.SOCK_DGRAM) as server:
                client.send(b"ask")
                assert server.recv(100) == b"ask"
            host.delete(pod, config)
            host.delete(pod, host.bridge(*DUAL, hairpinMode=True, ipMasq=True))


@pytest.mark.parametrize(
    ("mapping", "reported"),
    [
        ({"hostPort": 0, "containerPort": 80}, "hostPort: 0"),
        ({"hostPort": -1, "containerPort": 80}, "hostPort: -1"),
        ({"hostPort": 70000, "containerPort": 80}, "hostPort: 70000"),
        ({"hostPort": 80, "containerPort": 0}, "containerPort: 0"),
        ({"hostPort": 80, "containerPort": 80, "protocol": "foo"}, "protocol: 'foo'"),
        ({"hostPort": 80, "containerPort": 80, "hostIP": "here"}, "hostIP"),
    ],
)
def test_invalid_mapping_is_an_error(host, refused, mapping, reported):
    host.pod("a")
    previous = host.add("a", host.bridge())
    with refused(7, reported):
        host.add("a", host.portmap(previous, mapping))
    assert list(host.records.glob("portmap/*")) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"backend": "ebpf"},
        {"markMasqBit": 13},
        {"externalSetMarkChain": "KUBE-MARK-MASQ"},
        {"conditionsV4": ["-s", "x"]},
    ],
    ids=lambda each: next(iter(each)),
)
def test_iptables_only_keys_are_errors_with_their_name(host, refused, keys):
    host.pod("a")
    with refused(2, next(iter(keys))):
        host.add("a", host.portmap(host.add("a", host.bridge()), WEB, **keys))


def test_missing_prev_result_is_an_error(host, refused):
    host.pod("a")
    config = host.portmap({}, WEB)
    del config["prevResult"]
    for verb in ("ADD", "CHECK"):
        with refused(7, "prevResult"):
            host.call(verb, "a", config)


def test_check_fails_for_a_missing_mapping(host, map_ports, refused):
    config = map_ports("a", WEB)
    kernel = KernelElements(None, "podwire")
    kernel.delete("ports4", *kernel.list("ports4"))
    kernel.close()
    with refused(101, "host port tcp 8080"):
        host.check("a", config, config["prevResult"])


def test_repeated_add_restores_flushed_mappings(host, map_ports, serving, seen):
    first = map_ports("a", WEB)
    KernelRuleset().apply("flush ruleset\n")
    map_ports("b", WEB | {"hostPort": 9090})
    with serving(host.namespaces.path("b"), 80) as server:
        assert seen(server, None, "127.0.0.1", 9090) is not None
    host.delete("a", first)


def test_other_tables_are_not_touched(host, map_ports):
    foreign = "table inet theirs {\n\tset numbers {\n\t\ttype inet_service\n\t\telements = { 80, 443 }\n\t}\n}\n"
    KernelRuleset().apply(foreign)
    config = map_ports("a", WEB)
    host.delete("a", config)
    host.delete("a", host.bridge(*DUAL))
    output = subprocess.run(
        ["nft", "list", "table", "inet", "theirs"], capture_output=True, text=True, check=True
    ).stdout
    assert output == foreign
