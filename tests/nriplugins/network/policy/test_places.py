"""Where packets are judged: on bridges, behind Services, in a pod's own namespace, and what has no single receiver."""
# ruff: noqa: E501 - a table has a case in each line

import select
import socket
import time
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest

from podwire.linux import errors
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.proc.namespaces import visit
from podwire.nriplugins.network.policy import Content, Kernel, LocalPod, explain
from podwire.nriplugins.network.policy.bridges import CALLS, Bridges, NotEnforceable
from podwire.nriplugins.network.policy.values import Attachment
from tests.eventually import eventually

PATIENCE = 30.0


def manifest(spec, name="p", namespace="shop"):
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


DENY_IN = manifest({"podSelector": {}}, "deny")
DENY = manifest({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, "deny")


ON_A_BRIDGE = pytest.mark.parametrize("world", ["bridge"], indirect=True)
ROUTED = pytest.mark.parametrize("world", ["routed"], indirect=True)


# Bridges.


@ON_A_BRIDGE
def test_a_bridge_that_does_not_call_is_healed(world):
    """The reason for all this: with the switch off an isolated pod is reached by its neighbours."""
    with world.policies(DENY_IN):
        assert not world.send("db", "web", 80, "UDP", 4)
        for call in CALLS:
            KernelSysctls(world.node).write(call, "0")
        assert world.send("db", "web", 80, "UDP", 4)
        assert world.send("db", "web", 80, "UDP", 6)
        assert world.bridges.heal() == [*CALLS]
        assert not world.send("db", "web", 80, "UDP", 4)
        assert not world.send("db", "web", 80, "UDP", 6)
        assert world.bridges.heal() == []


@ON_A_BRIDGE
def test_a_switched_off_sysctl_is_noticed(world):
    bridges = Bridges(world.node)
    descriptor = bridges.watch()
    assert not select.select([descriptor], [], [], 0)[0]
    KernelSysctls(world.node).write(CALLS[1], "0")
    assert select.select([descriptor], [], [], PATIENCE)[0]
    assert bridges.heal() == [CALLS[1]]
    assert bridges.healed == 1
    assert not select.select([descriptor], [], [], 0)[0], "our own writing is not heard"
    assert bridges.watch() == descriptor
    bridges.close()
    bridges.close()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (errors.NoSuchSysctl(2, "read it"), "br_netfilter is not loaded"),
        (errors.NotPermitted(30, "write it"), "write it: Read-only file system"),
        (None, "does not stay 1"),
    ],
    ids=["no module", "not writable", "does not stay"],
)
def test_a_kernel_without_bridge_netfilter_is_reported_with_the_reason(error, why, monkeypatch):
    def fail(*_):
        if error is not None:
            raise error
        return "0"

    monkeypatch.setattr(KernelSysctls, "read", fail)
    monkeypatch.setattr(KernelSysctls, "write", fail)
    with pytest.raises(NotEnforceable, match=why):
        Bridges().ensure()


# What has no single receiver.


def shouted(world, source, destination, address, port, *, expected) -> bool:
    """Whether a datagram to an address that is not the pod's own is heard by it. One that is not expected had its time:
    a second one, to the outside, has arrived."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with visit(world.paths[source]), socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        scope = (0, socket.if_nametoindex("eth0")) if family == socket.AF_INET6 else ()
        with visit(world.paths[destination]):
            listener = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with listener:
            listener.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
            return heard(
                listener,
                lambda: sender.sendto(b"to many", (address, port, *scope)),
                None if expected else lambda: world.send(source, "outside", port, "UDP", 4),
            )


def heard(listener, send, later) -> bool:
    """Whether it comes; one that should is sent again, one that should not is over when a later one has arrived."""
    if later is not None:
        send()
        assert later()
        return bool(select.select([listener], [], [], 0)[0])
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        send()
        if select.select([listener], [], [], 1)[0]:
            return True
    return False


LINK_LOCAL = "link-local"


def link_local(world, name) -> str:
    with visit(world.paths[name]):
        lines = [line.split() for line in Path("/proc/thread-self/net/if_inet6").read_text().splitlines()]
    found = next(line[0] for line in lines if line[5] == "eth0" and line[0].startswith("fe80"))
    return str(ip_address(bytes.fromhex(found)))


@ON_A_BRIDGE
@pytest.mark.parametrize("to", ["10.1.0.255", "255.255.255.255", "ff02::1", LINK_LOCAL])
def test_an_isolated_bridged_pod_gets_no_multicast(world, to):
    def reached(*, expected):
        address = link_local(world, "web") if to == LINK_LOCAL else to
        return shouted(world, "job", "web", address, 7400, expected=expected)

    assert reached(expected=True), "nobody is isolated"
    with world.policies(manifest({"podSelector": {"matchLabels": {"app": "web"}}})):
        assert not reached(expected=False)
        assert world.send("web", "job", 80, "TCP", 6), "neighbours are still found"
    assert reached(expected=True)


@ON_A_BRIDGE
def test_namespace_rules_do_not_bypass_rules_for_single_pods(world):
    """The ports of DHCP are not open for datagrams to one pod."""
    with world.policies(DENY_IN):
        assert not world.send("job", "web", 67, "UDP", 4)
        assert not world.send("job", "web", 68, "UDP", 4)


@ROUTED
@pytest.mark.parametrize("to", ["db", "node"])
def test_a_routed_pod_cannot_send_from_another_address(world, to):
    """It is isolated for egress, has given itself another address, and calls where nobody would ask who it is."""
    forged = [ip_interface("10.2.10.77/24"), ip_interface("fd00:2:10::77/64")]
    with KernelNetwork(world.paths["web"]) as inside:
        for entry in forged:
            inside.addresses.add(2, entry)
        try:
            assert all(forged_arrives(world, item.ip, to, expected=True) for item in forged), "it is not isolated"
            allowed = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": [{}]}
            with world.policies(manifest(allowed)):
                assert not any(forged_arrives(world, item.ip, to, expected=False) for item in forged)
                assert all(world.send("web", to, 80, "UDP", family) for family in (4, 6))
        finally:
            for entry in forged:
                inside.addresses.delete(2, entry)


def forged_arrives(world, address, to, *, expected) -> bool:
    """One that is not expected had its time: a second one, under the right address, has arrived."""
    there = next(item for item in world.ips(to) if item.version == address.version)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with visit(world.paths[to]):
        listener = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    with visit(world.paths["web"]):
        sender = socket.socket(family, socket.SOCK_DGRAM)
    with listener, sender:
        listener.bind((str(there), 7600))
        sender.bind((str(address), 0))
        return heard(
            listener,
            lambda: sender.sendto(b"x", (str(there), 7600)),
            None if expected else lambda: world.send("web", to, 7601, "UDP", address.version),
        )


# Services.


def test_a_service_is_filtered_by_its_backend(world):
    web, service = world.ips("web")[0], "10.96.0.10"
    KernelRuleset(world.node).apply(
        f"""table ip services {{
            chain before {{
                type nat hook prerouting priority dstnat
                ip daddr {service} tcp dport 80 dnat to {web}:8080
            }}
            chain after {{
                type nat hook postrouting priority srcnat
                ip saddr {web} ip daddr {web} masquerade
            }}
        }}"""
    )
    allowed = manifest({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": 8080}]}]})
    other = manifest({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": 80}]}]})
    try:
        for policy, expected in ((allowed, True), (other, False)):
            with world.policies(policy):
                assert world.explained("db", "web", 8080, "TCP", 4) is expected
                assert called(world, "db", service, 80, world.paths["web"], (str(web), 8080)) is expected
                # A pod that calls itself by its Service.
                if world.kind == "routed":
                    assert called(world, "web", service, 80, world.paths["web"], (str(web), 8080))
    finally:
        KernelRuleset(world.node).apply("delete table ip services\n")


def called(world, source, address, port, path, listens) -> bool:
    """Whether a connection to an address arrives at a listener elsewhere."""
    with visit(path):
        listener = socket.create_server(listens)
    with visit(world.paths[source]):
        caller = socket.socket()
    before = world.drops()
    with listener, caller:
        caller.setblocking(False)
        caller.connect_ex((address, port))
        came = []

        def decided():
            came[:] = select.select([listener], [], [], 0.002)[0]
            return came or world.drops() > before

        eventually(decided)
        return bool(came)


# Inside a pod.


@contextmanager
def inside(world, name):
    """The pod is judged in its own namespace instead, as one would be that has no link of the node."""
    local = world.content.locals[name]
    world.content.remove(name)
    content, kernel = (
        Content(world.model, everyone=False),
        Kernel(world.paths[name], inside=True, node=world.ips("node")),
    )
    content.put(replace(local, attachment=Attachment.INSIDE, link="eth0"))
    try:
        kernel.apply(content.desired())
        world.settle()
        yield content, kernel
    finally:
        kernel.remove()
        kernel.close()
        world.content.put(local)
        world.settle()


INSIDE = [
    ("nobody comes in", DENY, "job", "web", 80, "TCP", False),
    ("nobody goes out", DENY, "web", "job", 80, "UDP", False),
    ("the node comes in", DENY, "node", "web", 80, "TCP", True),
    ("it does not go out to the node", DENY, "web", "node", 80, "TCP", False),
    ("a peer", manifest({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "job"}}}]}]}), "job", "web", 80, "SCTP", True),
    ("another", manifest({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "job"}}}]}]}), "db", "web", 80, "SCTP", False),
    ("a namespace", manifest({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "dev"}}}]}]}), "tool", "web", 80, "UDP", True),
    ("any pod", manifest({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]}), "tool", "web", 80, "UDP", True),
    ("any pod is not the outside", manifest({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]}), "outside", "web", 80, "UDP", False),
    ("egress to a named port", manifest({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": "sql"}]}]}), "web", "twin", 15432, "TCP", True),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "source", "destination", "port", "protocol", "expected"), [item[1:] for item in INSIDE], ids=[item[0] for item in INSIDE])  # fmt: skip
def test_a_pod_without_a_link_to_the_node_is_filtered_in_its_namespace(
    world, policy, source, destination, port, protocol, expected
):
    with inside(world, "web") as (content, kernel), world.policies(policy):
        # Its own rules only: those of the others on the node would decide as well.
        for local in [*world.content.locals]:
            world.content.remove(local)
        world.settle()
        kernel.apply(content.desired())
        node, world.kernel = world.kernel, kernel
        try:
            for family in (4, 6):
                assert world.explained(source, destination, port, protocol, family) is expected
                assert world.send(source, destination, port, protocol, family) is expected
        finally:
            world.kernel = node


def test_an_isolated_pod_reaches_itself_inside(world):
    with inside(world, "web") as (content, kernel), world.policies(DENY):
        world.content.remove("web")
        world.settle()
        kernel.apply(content.desired())
        assert content.isolated("web")
        with visit(world.paths["web"]):
            for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
                with socket.create_server((address, 7500), family=family) as listener:
                    socket.create_connection(listener.getsockname()[:2], timeout=PATIENCE).close()
            for family, address in zip((socket.AF_INET, socket.AF_INET6), world.ips("web"), strict=True):
                with socket.create_server((str(address), 7501), family=family) as listener:
                    socket.create_connection(listener.getsockname()[:2], timeout=PATIENCE).close()


# The host's network.


def test_a_pod_on_the_hosts_network_is_outside(world):
    outside = replace(world.model.pods["job"], uid="host", name="host", ips=world.ips("outside"), host_network=True)
    from_job = manifest({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]})
    try:
        with world.policies(from_job, DENY_IN):
            world.model.put_pod(outside)
            world.content.put(LocalPod(uid="host", ips=outside.ips))
            world.settle()
            for family in (4, 6):
                assert not world.send("outside", "web", 80, "UDP", family)
                assert not explain(world.model, outside, world.model.pods["web"], 80, "UDP", family=family).allowed
                assert world.send("web", "outside", 80, "UDP", family)
                assert explain(world.model, world.model.pods["web"], outside, 80, "UDP", family=family).allowed
    finally:
        world.model.remove_pod("host")
        world.content.remove("host")
        world.settle()
