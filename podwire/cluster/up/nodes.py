"""One node of a cluster: its addresses, pod ranges, paths, and the names of its components."""

from dataclasses import dataclass
from pathlib import Path

from podwire.cluster import runtime
from podwire.cluster.up.layout import FIRST, Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.cluster.up.slots import OWN_NODES, Network, Slot
from podwire.cluster.up.state import NodeRecord

MOST = OWN_NODES
"""Nodes of one cluster at most: each costs three processes on the same machine."""

_ROOT = Layout(Path("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    layout: Layout
    """The cluster's layout."""
    slot: Slot
    record: NodeRecord
    ipv6: bool
    host_ips: tuple[str, ...] = ()
    """Addresses of a node on the host itself."""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def home(self) -> Layout:
        """Paths of its state and its sockets on the host."""
        return self.layout.home(self.name) if self.record.own else self.layout

    @property
    def inside(self) -> Layout:
        """The same paths as the node sees them: with its own namespaces there is no prefix."""
        return _ROOT if self.record.own else self.layout

    @property
    def space(self) -> NodeNamespaces | None:
        """Its namespaces; None when it is on the host itself."""
        return NodeNamespaces(self.layout, self.name) if self.record.own else None

    @property
    def trace_socket(self) -> Path:
        """The trace collector's socket, as the node sees it."""
        return self.inside.trace_socket

    @property
    def runtime(self) -> runtime.Options:
        """Options of its runtime, as the node sees them."""
        return runtime_on_node(self.layout, self.name) if self.record.own else runtime_on_host(self.layout)

    @property
    def ips(self) -> tuple[str, ...]:
        """The addresses with which it registers."""
        if not self.record.own:
            return self.host_ips
        return tuple(str(address.ip) for address in self.slot.addresses(self.record.number, ipv6=self.ipv6))

    @property
    def pod_ranges(self) -> tuple[Network, ...]:
        return self.slot.pod_ranges(self.record.number, ipv6=self.ipv6)

    @property
    def dns_address(self) -> str:
        """The address of the DNS server, which runs on the host."""
        return str(self.slot.gateways(ipv6=False)[0].ip) if self.record.own else self.host_ips[0]

    def called(self, component: str) -> str:
        """Returns `runtime` for the first node, `runtime@node-2` for the second."""
        return component if self.record.number == 1 else f"{component}@{self.name}"


def planned(known: tuple[NodeRecord, ...], wanted: int | None, first: NodeRecord) -> tuple[NodeRecord, ...]:
    """Returns the existing nodes, or the first one, and as many more as are wanted."""
    existing = known or (first,)
    numbers = range(len(existing) + 1, (wanted or 0) + 1)
    return (*existing, *(NodeRecord(name=f"node-{number}", number=number, own=True) for number in numbers))


def objection(known: tuple[NodeRecord, ...], wanted: int | None) -> str:
    """Returns why there cannot be as many nodes as wanted; empty if there can."""
    if wanted is None:
        return ""
    if not 1 <= wanted <= MOST:
        return f"a cluster has between 1 and {MOST} nodes"
    if wanted < len(known):
        return f"this cluster has {len(known)} nodes, and nodes are never removed; `podwire down` it first"
    if wanted > 1 and not all(node.own for node in known):
        return "the node of this cluster is on the host itself, which has space for one node; `podwire down` it first"
    return ""


def runtime_on_host(layout: Layout, node: str = FIRST) -> runtime.Options:
    """Returns the options of a node's runtime with the host's paths. A node on the host itself is like the first."""
    home = layout.home(node)
    return runtime.Options(
        socket=home.runtime_socket, prefix=home.prefix, cgroup_root=cgroup_of(layout, node), name=_image_owner(node)
    )


def runtime_on_node(layout: Layout, node: str) -> runtime.Options:
    """Returns the options of a node's runtime with the paths inside the node's namespaces: the standard paths.

    Cgroups belong to the machine: their names follow from the real prefix.
    """
    return runtime.Options(
        socket=_ROOT.runtime_socket,
        prefix=_ROOT.prefix,
        cgroup_root=cgroup_of(layout, node),
        name=_image_owner(node),
    )


def cgroup_of(layout: Layout, node: str) -> str:
    """Returns the parent of a node's cgroups. Each node has one, because a runtime removes orphans below its parent."""
    first = runtime.Options(socket=layout.runtime_socket, prefix=layout.prefix).cgroup_parent
    return first if node == FIRST else f"{first}-{node}"


def _image_owner(node: str) -> str:
    """Returns the owner of a node's containers in the image store, which all nodes share."""
    return "" if node == FIRST else node
