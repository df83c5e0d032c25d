"""Finds resources that `up` created on this host, by their owner tags, never by records."""

import asyncio
import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from podwire.cluster.up import component_processes, host_network, nodes, state
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.slots import TABLES
from podwire.cluster.up.state import BrokenState
from podwire.durable.records import NewerFormat
from podwire.inspect import leftovers
from podwire.inspect.leakcheck import Leftover
from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import mounted
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc import processes
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object, metadata
from podwire.proxy.announced_addresses import AnnouncedAddresses
from podwire.transports import credentials, http_client
from podwire.transports.unix_sockets import is_stale

OWNER = "cluster"
"""The owner of these resources: the cluster of the record."""

NFT_SECONDS = 10.0
API_SECONDS = 10.0
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror: the uid of its static pod."""
SERVICES = Kind(group="", version="v1", resource="services", kind="Service", namespaced=True)
PODS = Kind(group="", version="v1", resource="pods", kind="Pod", namespaced=True)
KUBELET_SOCKETS = ("device-plugins", "plugins", "plugins_registry", "pod-resources")
WRITTEN_BY_PODS = frozenset({"shm", "rootfs"})


def find_resources(layout: Layout, claims: SlotClaims) -> set[Leftover]:
    """Returns all resources of the cluster below a prefix, and of its pods, on the host and on its nodes."""
    resources = set(_own(layout, claims))
    on_host = _has_pods_on_host(layout)
    for name in layout.nodes():
        resources |= leftovers.find_resources(nodes.runtime_on_host(layout, name), network=on_host)
    for space in _spaces(layout):
        resources |= space.inside(partial(leftovers.find_resources, nodes.runtime_on_node(layout, space.name)))
    return resources


def owners(layout: Layout) -> set[str]:
    """Returns recorded sandboxes and containers, pods of other runtimes, and the cluster itself if it has a record."""
    known: set[str] = set()
    for name in layout.nodes():
        options = nodes.runtime_on_host(layout, name)
        known |= leftovers.owners(options) | leftovers.foreign_owners(options)
    return known | {OWNER} if state.exists(layout.record) else known


def _has_pods_on_host(layout: Layout) -> bool:
    """Whether pods of this prefix can be in the host's network namespace.

    Nodes of a cluster with another prefix than / always have their own namespaces. Without a cluster, a runtime that
    runs alone has its pods on the host. A cluster that was removed has neither, so that resources of other clusters and
    runtimes on this host are not taken for its leftovers.
    """
    try:
        known = state.load(layout.record)
    except (BrokenState, NewerFormat):
        known = None
    if known is not None:
        return not known.nodes[0].own
    return layout.is_default or (layout.state / "runtime").is_dir()


def _spaces(layout: Layout) -> list[NodeNamespaces]:
    names = [path.name for path in layout.pins.iterdir()] if layout.pins.is_dir() else []
    return [space for name in names if (space := NodeNamespaces(layout, name)).exists()]


def _own(layout: Layout, claims: SlotClaims) -> Iterator[Leftover]:
    yield from _namespaces(layout)
    yield from _links(layout)
    yield from _tables(layout)
    for number in claims.of(layout.prefix):
        yield Leftover("slot", str(number), OWNER)
    for pid, name in component_processes.components(layout).items():
        yield Leftover("component", f"{name} {pid}", OWNER)
    yield from _stale_sockets(layout)


def _stale_sockets(layout: Layout) -> Iterator[Leftover]:
    """Finds sockets of components and plugins on which nobody listens; not below directories that pods can write to."""
    for home in {layout, *map(layout.home, layout.nodes())}:
        run, kubelet = home.run, home.prefix / "var/lib/kubelet"
        directories = [run, home.prefix / "run/nri", *(kubelet / name for name in KUBELET_SOCKETS)]
        if run.is_dir():
            directories += [path for path in run.iterdir() if path.is_dir() and path.name not in WRITTEN_BY_PODS]
        for directory in directories:
            for path in directory.iterdir() if directory.is_dir() else ():
                if is_stale(path):
                    yield Leftover("socket", str(path), OWNER)


def sandboxes(layout: Layout) -> dict[str, leftovers.SandboxPod]:
    """Returns the pods of the recorded sandboxes of all nodes, by the ids of the sandboxes."""
    found: dict[str, leftovers.SandboxPod] = {}
    for name in layout.nodes():
        found |= leftovers.sandbox_pods(nodes.runtime_on_host(layout, name))
    return found


async def find_without_object(layout: Layout) -> list[Leftover]:
    """Returns sandboxes whose pod, or its mirror, the API does not have; and addresses of load balancers on nodes that
    no Service has. Raises BadKubeconfig, ApiError, ClientError.

    Both are read first: the pod of a sandbox that was just made exists already.
    """
    present, addresses = sandboxes(layout), announced(layout)
    if not present and not addresses:
        return []
    async with (
        asyncio.timeout(API_SECONDS),
        http_client.connect(credentials.load(layout.kubeconfig), user_agent="podwire-leakcheck") as http,
    ):
        pods = await Client(http).list(PODS)
        services = await Client(http).list(SERVICES)
    return without_object(present, addresses, pods.items, services.items)


def without_object(
    present: Mapping[str, leftovers.SandboxPod],
    addresses: Collection[str],
    pods: Iterable[Object],
    services: Iterable[Object],
) -> list[Leftover]:
    """Returns sandboxes without a pod, and addresses without a Service. Pure."""
    uids = {uid for pod in pods for uid in (metadata(pod)["uid"], _static_uid(pod))}
    in_use = {address for service in services for address in _ingress(service)}
    return sorted(
        [
            *(Leftover("sandbox", pod.name, id_) for id_, pod in present.items() if pod.uid not in uids),
            *(Leftover("load-balancer address", address, OWNER) for address in set(addresses) - in_use),
        ]
    )


def announced(layout: Layout) -> set[str]:
    """Returns the addresses of load balancers on the links of all nodes, by their owner tag."""
    places = [space.inside(_announced_here) for space in _spaces(layout)]
    return {address for place in [*places, _announced_here() if _has_pods_on_host(layout) else ()] for address in place}


def _announced_here() -> set[str]:
    with contextlib.closing(AnnouncedAddresses()) as addresses:
        return {str(address) for address in addresses.present()}


def _ingress(service: Object) -> set[str]:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return {str(ingress.get("ip", "")) for ingress in balancer.get("ingress") or ()}


def _static_uid(pod: Object) -> str:
    """Returns the uid of the static pod that a mirror stands for; '' for other pods."""
    return str((metadata(pod).get("annotations") or {}).get(MIRROR, ""))


def _namespaces(layout: Layout) -> Iterator[Leftover]:
    for mount in mounted():
        if Path(mount.target).is_relative_to(layout.pins):
            yield Leftover("node namespace" if mount.kind == "nsfs" else "mount", mount.target, OWNER)


def _links(layout: Layout) -> Iterator[Leftover]:
    with contextlib.closing(KernelNetwork()) as network:
        for link in network.links.list():
            if link.alias == host_network.owner_tag(layout):
                yield Leftover("link", link.name, OWNER)


def _tables(layout: Layout) -> Iterator[Leftover]:
    """Finds nft tables whose comment is the owner tag of this cluster; none without nft."""
    mark = f'comment "{host_network.owner_tag(layout)}"'
    for name in re.findall(rf"\b{TABLES}\d+\b", _nft("list", "tables", "inet")):
        if mark in _nft("list", "table", "inet", name):
            yield Leftover("nft table", name, OWNER)


def _nft(*words: str) -> str:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    try:
        done = processes.run(("nft", *words), env=environment, deadline=NFT_SECONDS)
    except LinuxError:
        return ""
    return done.stdout.decode("utf-8", "replace")
