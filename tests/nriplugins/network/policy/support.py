"""A node with pods in their own namespaces, once on a bridge and once by routed links, and packets between them."""

import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network
from itertools import count

from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import KernelNamespaces, visit
from podwire.linux.values import Bridge, Route, Veth
from podwire.nriplugins.network.policy import Content, Kernel, LocalPod, Model, explain
from podwire.nriplugins.network.policy.admin_policies import admin_policy_of
from podwire.nriplugins.network.policy.bridges import CALLS, Bridges
from podwire.nriplugins.network.policy.policies import policy_of
from podwire.nriplugins.network.policy.values import PROTOCOLS, Attachment, Pod

PATIENCE, AGAIN = 30.0, 2.0
NAMESPACES = {
    "shop": {"team": "shop"},
    "ops": {"team": "ops", "kind": "inner"},
    "dev": {"team": "dev", "kind": "inner"},
}
PODS = {
    "web": Pod(
        uid="web",
        namespace="shop",
        name="web",
        labels={"app": "web", "tier": "front"},
        ports={("TCP", "http"): 8080, ("UDP", "http"): 8081, ("TCP", "admin"): 9000},
    ),
    "db": Pod(uid="db", namespace="shop", name="db", labels={"app": "db"}, ports={("TCP", "sql"): 5432}),
    "job": Pod(uid="job", namespace="shop", name="job", labels={"app": "job", "tier": "batch"}),
    "mon": Pod(uid="mon", namespace="ops", name="mon", labels={"app": "mon", "tier": "front"}),
    "tool": Pod(uid="tool", namespace="dev", name="tool", labels={"app": "tool"}),
    "twin": Pod(
        uid="twin",
        namespace="dev",
        name="twin",
        labels={"app": "web"},
        ports={("TCP", "http"): 9090, ("TCP", "sql"): 15432},
    ),
}
PLACES = {name: number for number, name in enumerate((*PODS, "outside"), 10)}
"""The last numbers of their addresses. Outside is not a pod, and not on the node."""


class NodeWithPods:
    """One node. `send` says what became of a packet: it came, or the kernel's counter of drops went up."""

    def __init__(self, directory, kind: str) -> None:
        self.kind = kind
        self._stack = ExitStack()
        self._names = KernelNamespaces(directory)
        self._stack.callback(lambda: [self._names.remove(item.name) for item in self._names.list()])
        self._source = count(20_000)
        self.node = self._names.create("node").path
        self.paths: dict[str, str] = {"node": self.node}
        self._network = self._stack.enter_context(KernelNetwork(self.node))
        self._network.links.change("lo", up=True)
        sysctls = KernelSysctls(self.node)
        for entry in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            sysctls.write(entry, "1")
        # An address that is being asked for cannot be used yet, and that takes a second.
        sysctls.write("net.ipv6.conf.default.accept_dad", "0")
        for call in CALLS:
            sysctls.write(call, "0")
        if kind == "bridge":
            self._bridge()
        for name in PLACES:
            self._attach(name)
        self.model, self.content, self.kernel = self.fresh()
        self.bridges = Bridges(self.node)
        if kind == "bridge":
            self.bridges.ensure()

    def close(self) -> None:
        self.bridges.close()
        self.kernel.close()
        self._stack.close()

    # Links.

    def _bridge(self) -> None:
        self._network.links.add(Bridge("br0", mac="02:00:00:00:00:01", up=True))
        index = self._network.links.get("br0").ifindex
        for name in ("10.1.0.1/24", "fd00:1::1/64"):
            self._network.addresses.add(index, ip_interface(name))

    def _attach(self, name: str) -> None:
        path = self._names.create(name).path
        self.paths[name] = path
        KernelSysctls(path).write("net.ipv6.conf.default.accept_dad", "0")
        bridged = self.kind == "bridge" and name != "outside"
        self._network.links.add(Veth(f"h-{name}", "eth0", path, peer_index=2, up=True))
        host = self._network.links.get(f"h-{name}").ifindex
        if bridged:
            self._network.links.change(host, master=self._network.links.get("br0").ifindex)
        else:
            for item in self.gateways(name):
                self._network.addresses.add(host, ip_interface(item))
        with KernelNetwork(path) as inside, inside.batch() as batch:
            batch.links.change("lo", up=True)
            batch.links.change(2, up=True)
            for address, gateway in zip(self.ips(name), self.gateways(name), strict=True):
                via = ip_interface(gateway)
                batch.addresses.add(2, ip_interface(f"{address}/{via.network.prefixlen}"))
                everywhere = ip_network("0.0.0.0/0" if address.version == 4 else "::/0")
                batch.routes.add(Route(everywhere, via.ip, 2))

    def gateways(self, name: str) -> tuple[str, str]:
        if self.kind == "bridge" and name != "outside":
            return "10.1.0.1/24", "fd00:1::1/64"
        number = PLACES[name]
        return f"10.2.{number}.1/24", f"fd00:2:{number}::1/64"

    def ips(self, name: str):
        """Of a pod, of the outside, or of the node as pods see it."""
        if name == "node":
            return tuple(ip_interface(gateway).ip for gateway in self.gateways("web"))
        number = PLACES[name]
        if self.kind == "bridge" and name != "outside":
            return ip_address(f"10.1.0.{number}"), ip_address(f"fd00:1::{number}")
        return ip_address(f"10.2.{number}.2"), ip_address(f"fd00:2:{number}::2")

    # Policies.

    def fresh(self):
        """Everything known, no policies."""
        model = Model()
        model.put_node("node", self.ips("node"), {"kind": "worker"})
        for name, labels in NAMESPACES.items():
            model.put_namespace(name, labels)
        content = Content(model)
        for pod in PODS.values():
            self.add(model, content, pod)
        kernel = Kernel(self.node)
        kernel.apply(content.desired())
        return model, content, kernel

    def add(self, model, content, pod: Pod) -> None:
        ips = self.ips(pod.name)
        model.put_pod(replace(pod, ips=ips, node="node"))
        attachment = Attachment.BRIDGED if self.kind == "bridge" else Attachment.ROUTED
        link = "br0" if self.kind == "bridge" else f"h-{pod.name}"
        content.put(LocalPod(uid=pod.uid, ips=ips, attachment=attachment, link=link))

    def settle(self) -> int:
        return self.kernel.apply(self.content.desired())

    @contextmanager
    def policies(self, *manifests) -> Iterator[None]:
        """While the block lasts; everything is as before afterwards."""
        given = [policy_of(manifest) for manifest in manifests if "kind" not in manifest]
        admin = [admin_policy_of(manifest) for manifest in manifests if "kind" in manifest]
        for item in given:
            self.model.put_policy(item)
        for item in admin:
            self.model.put_admin_policy(item)
        self.settle()
        try:
            yield
        finally:
            for item in given:
                self.model.remove_policy(*item.key)
            for item in admin:
                self.model.remove_admin_policy(*item.key)
            for name, labels in NAMESPACES.items():
                self.model.put_namespace(name, labels)
            for pod in PODS.values():
                self.add(self.model, self.content, pod)
            self.settle()

    def explained(self, source: str, destination: str, port: int, protocol: str, family: int) -> bool:
        version = 0 if family == 4 else 1
        ends = [self.model.pods.get(item) or self.ips(item)[version] for item in (source, destination)]
        return explain(self.model, *ends, port, protocol, family=family).allowed

    # Packets.

    def drops(self, *ips) -> int:
        """Of all, or of some addresses."""
        packed = {address.packed for address in ips}
        found = [
            verdict
            for verdict in self.kernel.verdicts()
            if not verdict.allowed and (not ips or verdict.address in packed)
        ]
        return sum(item.counted.packets for item in found)

    def send(self, source: str, destination: str, port: int, protocol: str, family: int) -> bool:
        """Whether a packet that opens a connection arrives."""
        version = 0 if family == 4 else 1
        here, there = self.ips(source)[version], self.ips(destination)[version]
        paths, until = (self.paths[source], self.paths[destination]), time.monotonic() + PATIENCE
        while time.monotonic() < until:  # one may be lost while neighbours are looked for
            dropped = self.drops(here, there)
            with ENDS[protocol](*paths, here, there, port, next(self._source)) as ends:
                came = self._decided(ends, dropped, here, there)
            if came is not None:
                return came
        raise AssertionError(f"neither came nor was dropped: {source} {destination} {port} {protocol}")

    def _decided(self, ends: "Ends", dropped: int, here, there) -> bool | None:
        again = time.monotonic() + AGAIN
        while not ends.arrived():
            if self.drops(here, there) > dropped:
                # Dropped is dropped: nothing may have come by another way.
                return ends.arrived()
            if time.monotonic() > again:
                return None
        return True


class Ends:
    """Where a packet should come, which is under way when this is made."""

    def __init__(self, listener: socket.socket, marked: bytes | None) -> None:
        self.listener, self._marked = listener, marked

    def arrived(self) -> bool:
        ready, _, _ = select.select([self.listener], [], [], 0.002)
        if not ready:
            return False
        return self._marked is None or self._marked in self.listener.recv(2048)


@contextmanager
def opened(path: str, address, kind: int, port: int, protocol: int = 0) -> Iterator[socket.socket]:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with visit(path):
        end = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    with end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end.bind((str(address), port))
        yield end


@contextmanager
def udp(here, there, source, destination, port, from_port) -> Iterator[Ends]:
    marked = f"{from_port}".encode()
    listening = opened(there, destination, socket.SOCK_DGRAM, port)
    with listening as listener, opened(here, source, socket.SOCK_DGRAM, from_port) as sender:
        with suppress(PermissionError):  # judged at the sender's own end
            sender.sendto(marked, (str(destination), port))
        yield Ends(listener, marked)


@contextmanager
def tcp(here, there, source, destination, port, from_port) -> Iterator[Ends]:
    with opened(there, destination, socket.SOCK_STREAM, port) as listener:
        listener.listen()
        with opened(here, source, socket.SOCK_STREAM, from_port) as sender:
            sender.connect_ex((str(destination), port))
            yield Ends(listener, None)


@contextmanager
def sctp(here, there, source, destination, port, from_port) -> Iterator[Ends]:
    """By hand: this kernel may have no such sockets."""
    marked, packet = from_port.to_bytes(4, "big"), sctp_init(from_port, port)
    listening = opened(there, destination, socket.SOCK_RAW, 0, PROTOCOLS["SCTP"])
    with listening as listener, opened(here, source, socket.SOCK_RAW, 0, PROTOCOLS["SCTP"]) as sender:
        with suppress(PermissionError):
            sender.sendto(packet, (str(destination), 0))
        yield Ends(listener, marked)


@contextmanager
def icmp(here, there, source, destination, port, from_port) -> Iterator[Ends]:
    """An echo request; it has no port."""
    marked = from_port.to_bytes(4, "big")
    old = source.version == 4
    protocol, kind = (socket.IPPROTO_ICMP, 8) if old else (socket.IPPROTO_ICMPV6, 128)
    request = struct.pack(">BBHHH", kind, 0, 0, from_port, 1) + marked  # a number of its own: no known connection
    if old:  # the kernel sums up ICMPv6 by itself
        total = sum(struct.unpack(">6H", request))
        total = (total & 0xFFFF) + (total >> 16)
        request = request[:2] + struct.pack(">H", ~total & 0xFFFF) + request[4:]
    listening = opened(there, destination, socket.SOCK_RAW, 0, protocol)
    with listening as listener, opened(here, source, socket.SOCK_RAW, 0, protocol) as sender:
        with suppress(PermissionError):
            sender.sendto(request, (str(destination), port))
        yield Ends(listener, marked)


def sctp_init(from_port: int, port: int) -> bytes:
    """Returns the packet that opens a connection, with the port of the sender in its tags."""
    init = struct.pack(">BBHIIHHI", 1, 0, 20, from_port, 65535, 1, 1, from_port)
    head = struct.pack(">HHI", from_port, port, 0)
    return head + struct.pack("<I", crc32c(head + bytes(4) + init)) + init


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for item in data:
        value ^= item
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


ENDS = {"UDP": udp, "TCP": tcp, "SCTP": sctp, "ICMP": icmp}
