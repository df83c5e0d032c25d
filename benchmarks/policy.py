"""NetworkPolicies: what a pod's hook costs, how soon a change is in the kernel, and what packets pay for it.

Everything happens in network namespaces of its own. The model is a cluster's: many namespaces, each with its own
applications and policies, and a hundred pods on this node.
"""

import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from benchmarks.figures import MEASURED, Figure, Peer
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import KernelNamespaces, visit
from podwire.linux.values import IP, Bridge, Path, Route, Veth
from podwire.nriplugins.network.policy import Content, Kernel, LocalPod, Model
from podwire.nriplugins.network.policy.bridges import Bridges
from podwire.nriplugins.network.policy.policies import policy_of
from podwire.nriplugins.network.policy.values import Attachment, Pod

HOOK = "NetworkPolicy, a pod's part of the hook with {pods} pods known"
UPDATE = "NetworkPolicy, a change reaches the rules of {local} pods"
PATH = "NetworkPolicy, two pods on a bridge"
PODS, LOCAL, NAMESPACES, APPS = 5_000, 100, 50, 20
HOOK_BUDGET = Peer("budget", 5.0, 1.0, MEASURED)
UPDATE_BUDGET = Peer("budget", 200.0, 1.0, MEASURED)
TURNS, LEFT = 8, 0.8
_CHUNK = bytes(1 << 18)


def measure(seconds: float) -> Iterator[Figure]:
    with _node() as node:
        for policies in (10, 1_000):
            cluster = Cluster(node, policies)
            yield from _hooks(cluster, policies, seconds)
            if policies > 10:
                yield _update(cluster, seconds)
            cluster.close()
    yield from _packets(seconds)


class Cluster:
    """The model of a node: pods everywhere, policies in every namespace, some pods of its own."""

    def __init__(self, netns: Path, policies: int, pods: int = PODS) -> None:
        self.model, self.kernel = Model(), Kernel(netns)
        for number in range(NAMESPACES):
            self.model.put_namespace(f"space-{number}", {"team": f"team-{number % 10}"})
        for number in range(pods):
            self.model.put_pod(pod(number))
        for number in range(policies):
            self.model.put_policy(policy_of(policy(number)))
        self.content = Content(self.model)
        for number in range(min(LOCAL, pods)):
            self.content.put(local(pod(number * NAMESPACES % pods)))
        self.kernel.apply(self.content.desired())

    def admit(self, new: Pod) -> float:
        """A pod comes, and goes again; how long it took until it was protected, in milliseconds."""
        begun = time.perf_counter()
        self.model.put_pod(new)
        self.content.put(local(new))
        self.kernel.apply(self.content.desired())
        took = (time.perf_counter() - begun) * 1e3
        self.content.remove(new.uid)
        self.model.remove_pod(new.uid)
        self.kernel.apply(self.content.desired())
        return took

    def close(self) -> None:
        self.kernel.remove()
        self.kernel.close()


def pod(number: int, labels: dict[str, str] | None = None) -> Pod:
    space, app = number % NAMESPACES, number // NAMESPACES % APPS
    ips = ip_address(0x0A000000 + number), ip_address((0xFD << 120) + number)
    return Pod(
        uid=f"pod-{number}",
        namespace=f"space-{space}",
        name=f"pod-{number}",
        labels={"app": f"app-{app}", "tier": f"tier-{app % 3}"} | (labels or {}),
        ips=ips,
        ports={("TCP", "http"): 8080},
    )


def local(of: Pod) -> LocalPod:
    return LocalPod(uid=of.uid, ips=of.ips)


def policy(number: int) -> dict[str, Any]:
    """One application may be reached by two others, by a team, and by some addresses."""
    space, app = number % NAMESPACES, number // NAMESPACES % APPS
    near = [{"podSelector": {"matchLabels": {"app": f"app-{(app + offset) % APPS}"}}} for offset in (1, 2)]
    far = {"namespaceSelector": {"matchLabels": {"team": f"team-{app % 10}"}}, "podSelector": {}}
    world = {"ipBlock": {"cidr": f"172.{16 + app % 16}.0.0/16", "except": [f"172.{16 + app % 16}.7.0/24"]}}
    spec = {
        "podSelector": {"matchLabels": {"app": f"app-{app}"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": near, "ports": [{"port": "http"}]},
            {"from": [far, world], "ports": [{"port": 443}, {"protocol": "UDP", "port": 5000, "endPort": 5100}]},
        ],
        "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "UDP", "port": 53}]}],
    }
    return {"metadata": {"namespace": f"space-{space}", "name": f"policy-{number}"}, "spec": spec}


def _hooks(cluster: Cluster, policies: int, seconds: float) -> Iterator[Figure]:
    group = HOOK.format(pods=f"{PODS:,}".replace(",", " "))
    named = f"{policies:,}".replace(",", " ")
    for what, labels in (("a replica of a known one", {}), ("a pod that is like no other", {"index": "{}"})):
        times: list[float] = []
        until, number = time.perf_counter() + seconds / 2, PODS
        while time.perf_counter() < until or len(times) < 20:
            number += 1
            own = {key: value.format(number) for key, value in labels.items()}
            times.append(cluster.admit(pod(number, own)))
        p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        title = f"{named} policies, {what}"
        yield Figure(group=group, what=title, value=p50, unit=" ms", p50_ms=p50, p99_ms=p99, peer=HOOK_BUDGET)


def _update(cluster: Cluster, seconds: float) -> Figure:
    """A policy for all pods of a namespace, of which a hundred are here, changes again and again."""
    for number in range(LOCAL):
        one = pod(PODS + number * NAMESPACES)
        cluster.model.put_pod(one)
        cluster.content.put(local(one))
    cluster.kernel.apply(cluster.content.desired())
    times: list[float] = []
    until, port = time.perf_counter() + seconds / 2, 1000
    while time.perf_counter() < until or len(times) < 10:
        port += 1
        rule = {"from": [{"namespaceSelector": {}}], "ports": [{"port": port}]}
        manifest = {"metadata": {"namespace": "space-0", "name": "all"}, "spec": {"podSelector": {}, "ingress": [rule]}}
        begun = time.perf_counter()
        cluster.model.put_policy(policy_of(manifest))
        cluster.kernel.apply(cluster.content.desired())
        times.append((time.perf_counter() - begun) * 1e3)
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    what = "a policy that is changed → in the kernel"
    group = UPDATE.format(local=LOCAL)
    return Figure(group=group, what=what, value=p50, unit=" ms", p50_ms=p50, p99_ms=p99, peer=UPDATE_BUDGET)


# Packets.


@dataclass(frozen=True, slots=True)
class _End:
    netns: str
    address: IP


@contextmanager
def _node() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="podwire-bench-") as folder:
        namespaces = KernelNamespaces(folder)
        try:
            yield namespaces.create("node").path
        finally:
            for namespace in namespaces.list():
                namespaces.remove(namespace.name)


@contextmanager
def _pair(node: str) -> Iterator[tuple[_End, _End]]:
    """Two pods on a bridge of the node; their addresses are those of two pods of the cluster."""
    with tempfile.TemporaryDirectory(prefix="podwire-bench-") as folder, KernelNetwork(node) as network:
        namespaces = KernelNamespaces(folder)
        network.links.add(Bridge("br0", up=True))
        master = network.links.get("br0").ifindex
        network.addresses.add(master, ip_interface("10.255.255.254/8"))
        KernelSysctls(node).write("net.ipv4.ip_forward", "1")
        ends = []
        for number in (0, NAMESPACES):
            path = namespaces.create(f"pod-{number}").path
            network.links.add(Veth(f"h{number}", "eth0", path, peer_index=2, master=master, up=True))
            address = pod(number).ips[0]
            with KernelNetwork(path) as inside, inside.batch() as batch:
                batch.links.change(2, up=True)
                batch.addresses.add(2, ip_interface(f"{address}/8"))
                batch.routes.add(Route(ip_network("0.0.0.0/0"), ip_address("10.255.255.254"), 2))
            ends.append(_End(path, address))
        try:
            yield ends[0], ends[1]
        finally:
            for namespace in namespaces.list():
                namespaces.remove(namespace.name)


def _packets(seconds: float) -> Iterator[Figure]:
    """In turns, because others may be busy on this machine: each number is the median of its turns."""
    rates: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as stack:
        paths = {policies: stack.enter_context(_path(policies)) for policies in (0, 100, 1_000)}
        for _ in range(TURNS):
            for policies, (client, server) in paths.items():
                for what, measured in MEASURES.items():
                    rate = measured(client, server, seconds / TURNS / 2)
                    rates.setdefault((what, policies), []).append(rate)
    for (what, policies), values in sorted(rates.items()):
        without = Peer("none", statistics.median(rates[what, 0]), LEFT, MEASURED) if policies else None
        named = f"{policies:,}".replace(",", " ")
        yield Figure(
            group=PATH, what=f"{what}, {named} policies", value=statistics.median(values), unit="/s", peer=without
        )


@contextmanager
def _path(policies: int) -> Iterator[tuple[_End, _End]]:
    """Two pods that may reach each other on one port, among so many policies; without any they are not isolated."""
    with _node() as node, _pair(node) as pair:
        Bridges(node).ensure()
        cluster = Cluster(node, policies)
        if policies:
            space, ports = {"namespace": "space-0"}, [{"port": 7000}]
            into = {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}], "ports": ports}]}
            out = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": ports}]}
            for name, spec in (("in", into), ("out", out)):
                cluster.model.put_policy(policy_of({"metadata": space | {"name": name}, "spec": spec}))
        for number in (0, NAMESPACES):
            bridged = LocalPod(uid=f"pod-{number}", ips=pod(number).ips, attachment=Attachment.BRIDGED, link="br0")
            cluster.content.put(bridged)
        cluster.kernel.apply(cluster.content.desired())
        yield pair
        cluster.close()


def _listening(end: _End) -> socket.socket:
    with visit(end.netns):
        listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((str(end.address), 7000))
    listener.listen(1024)
    return listener


def _connected(end: _End, to: _End) -> socket.socket:
    with visit(end.netns):
        caller = socket.socket()
    caller.connect((str(to.address), 7000))
    return caller


def _throughput(client: _End, server: _End, seconds: float) -> float:
    """Megabytes per second that arrive."""
    received = 0

    def drain(accepted: socket.socket) -> None:
        nonlocal received
        buffer = bytearray(len(_CHUNK))
        while size := accepted.recv_into(buffer):
            received += size

    with _listening(server) as listener, _connected(client, server) as caller:
        accepted, _ = listener.accept()
        reader = threading.Thread(target=drain, args=(accepted,))
        reader.start()
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            caller.sendall(_CHUNK)
        caller.shutdown(socket.SHUT_WR)
        reader.join()
        took = time.perf_counter() - begun
        accepted.close()
    return received / took / 1e6


def _connections(client: _End, server: _End, seconds: float) -> float:
    """Opened and closed, one after the other; closed with a reset, so that no port is left waiting."""
    count, at_once = 0, b"\1\0\0\0\0\0\0\0"
    with _listening(server) as listener:
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            with _connected(client, server) as caller:
                accepted, _ = listener.accept()
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                accepted.close()
            count += 1
        return count / (time.perf_counter() - begun)


MEASURES = {"TCP throughput, MB": _throughput, "TCP connections opened": _connections}
