"""Measures whole hooks of the network plugin: from the runtime's request to policies, routes and mesh in the kernel.

The pods are real namespaces with a link on a bridge; the plugin receives the cluster around them as from its watches.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ipaddress import ip_interface
from typing import Any

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.policy import NAMESPACES, PODS, pod, policy
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.linux.values import Bridge, Veth
from podwire.nri import pb
from podwire.nriplugins.network import kinds
from podwire.nriplugins.network.assembly import Parts, assemble
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.http import Incoming, Query, Reply
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Added
from podwire.transports.clock import SystemClock

HOOK = "Network plugin, RunPodSandbox as a whole"
STOP = "Network plugin, StopPodSandbox"
FEW = Peer("budget", 3.0, 1.0, MEASURED)
MANY = Peer("budget", 5.0, 1.0, MEASURED)
ROUTES = 9
SELECTED = {"matchLabels": {"app": "app-0"}}


def measure(seconds: float) -> Iterator[Figure]:
    for what, policies, resources, budget in (
        ("nothing concerns the pod", 0, False, FEW),
        (f"{ROUTES} PodRoutes and a PodMesh match", 0, True, FEW),
        ("1 000 policies and 5 000 pods known, 10 resources match", 1_000, True, MANY),
    ):
        with _node() as (namespaces, node):
            yield from asyncio.run(_hooks(namespaces, node, what, policies, seconds, budget, resources=resources))


async def _hooks(
    namespaces: KernelNamespaces, node: str, what: str, policies: int, seconds: float, budget: Peer, *, resources: bool
) -> list[Figure]:
    parts = assemble(Client(_NoServer()), SystemClock(), _NoTrace(), node="node", netns=node)
    try:
        _fill_caches(parts, policies, resources=resources)
        await parts.reconciler.synchronize_pods([], lambda _local: None)
        await parts.reconciler.reconcile()
        parts.informers.complete.set()
        starts: list[float] = []
        stops: list[float] = []
        until, number = time.perf_counter() + seconds, PODS
        while time.perf_counter() < until or len(starts) < 20:
            number += NAMESPACES * 20  # another pod of the same namespace and the same application
            with _attached(namespaces, node, number) as sandbox:
                parts.plugin.nri.pods.put(sandbox)
                starts.append(await _timed(parts.plugin.run_pod_sandbox(sandbox)))
                stops.append(await _timed(parts.plugin.stop_pod_sandbox(sandbox)))
                parts.plugin.nri.pods.remove(sandbox.id)
    finally:
        parts.close()
    return [_figure(HOOK, what, starts, budget), _figure(STOP, what, stops, None)]


async def _timed(work: Any) -> float:
    begun = time.perf_counter()
    await work
    return (time.perf_counter() - begun) * 1e3


def _figure(group: str, what: str, times: list[float], budget: Peer | None) -> Figure:
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    return Figure(group=group, what=what, value=p50, unit=" ms", p50_ms=p50, p99_ms=p99, peer=budget)


def _fill_caches(parts: Parts, policies: int, *, resources: bool) -> None:
    def add(kind: Kind, object_: dict[str, Any]) -> None:
        parts.reconciler.on_change(kind, Added({"kind": kind.kind, "apiVersion": kind.api_version, **object_}))

    if policies:
        for number in range(NAMESPACES):
            add(kinds.NAMESPACES, {"metadata": {"name": f"space-{number}", "labels": {"team": f"team-{number % 10}"}}})
        for number in range(PODS):
            add(kinds.PODS, _manifest(number))
        for number in range(policies):
            add(kinds.POLICIES, policy(number))
    if resources:
        for number in range(ROUTES):
            way = {"destinations": [f"10.{100 + number}.0.0/16"], "via": "10.255.255.254"}
            add(kinds.ROUTES, _resource(f"route-{number}", {"podSelector": SELECTED, "routes": [way]}))
        ways = {"proxy": {"uid": 1337}, "inbound": {"port": 15006}, "outbound": {"port": 15001}}
        add(kinds.MESHES, _resource("mesh", {"podSelector": SELECTED, **ways}))


def _manifest(number: int) -> dict[str, Any]:
    known = pod(number)
    ips = [{"ip": str(ip)} for ip in known.ips]
    meta = {"uid": known.uid, "namespace": known.namespace, "name": known.name, "labels": dict(known.labels)}
    ports = [{"name": "http", "containerPort": 8080}]
    spec = {"nodeName": "elsewhere", "containers": [{"name": "main", "ports": ports}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "podIPs": ips}}


def _resource(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"namespace": "space-0", "name": name, "uid": name}, "spec": spec}


# Where it happens.


@contextmanager
def _node() -> Iterator[tuple[KernelNamespaces, str]]:
    with tempfile.TemporaryDirectory(prefix="podwire-bench-") as folder:
        namespaces = KernelNamespaces(folder)
        try:
            node = namespaces.create("node").path
            with KernelNetwork(node) as network:
                network.links.add(Bridge("br0", up=True))
                network.addresses.add(network.links.get("br0").ifindex, ip_interface("10.255.255.254/8"))
            yield namespaces, node
        finally:
            for namespace in namespaces.list():
                namespaces.remove(namespace.name)


@contextmanager
def _attached(namespaces: KernelNamespaces, node: str, number: int) -> Iterator[pb.PodSandbox]:
    """A new pod's namespace, as CNI leaves it."""
    known, name = pod(number), f"pod-{number}"
    path = namespaces.create(name).path
    try:
        with KernelNetwork(node) as network:
            network.links.add(
                Veth(f"h{number}", "eth0", path, peer_index=2, master=network.links.get("br0").ifindex, up=True)
            )
        with KernelNetwork(path) as inside, inside.batch() as batch:
            batch.links.change(2, up=True)
            batch.addresses.add(2, ip_interface(f"{known.ips[0]}/8"))
        yield pb.PodSandbox(
            id=name,
            uid=known.uid,
            name=known.name,
            namespace=known.namespace,
            labels=known.labels,
            ips=[str(known.ips[0])],
            linux=pb.LinuxPodSandbox(namespaces=[pb.LinuxNamespace(type="network", path=path)]),
        )
    finally:
        namespaces.remove(name)


class _NoServer:
    """HTTP without an API server: writes succeed; nothing may be read, since the informers are filled in advance."""

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        if method == "GET":
            raise AssertionError(("unexpected read", path, query, headers))
        return Reply(200, {"content-type": "application/json"}, body)

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        raise AssertionError(("unexpected watch", method, path, query, headers))


class _NoTrace:
    """Records nothing."""

    def reads(self, uid: str, path: str) -> AbstractContextManager[Any]:
        return nullcontext((uid, path))

    def configures(self, uid: str, what: str) -> AbstractContextManager[Any]:
        return nullcontext((uid, what))
