"""One node of a cluster: its addresses, its pods' ranges, where its things are, and how its components are called."""

from dataclasses import dataclass
from pathlib import Path

from podwire.cluster import runtime
from podwire.cluster.up import node_mounts
from podwire.cluster.up.layout import FIRST, Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.cluster.up.slots import Network, Slot
from podwire.cluster.up.state import NodeRecord

MOST = 16
"""Nodes of one cluster: each costs three processes, and all of them share one machine."""

_ROOT = Layout(Path("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    layout: Layout
    """The whole cluster's."""
    slot: Slot
    record: NodeRecord
    ipv6: bool
    host_ips: tuple[str, ...] = ()
    """Where a node on the host itself is reached."""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def home(self) -> Layout:
        """Where its state and its sockets lie on the host."""
        return self.layout.home(self.name) if self.record.own else self.layout

    @property
    def inside(self) -> Layout:
        """Where they are as the node sees them: where it has namespaces of its own, the prefix is not in them."""
        return _ROOT if self.record.own else self.layout

    @property
    def space(self) -> NodeNamespaces | None:
        """Its namespaces; None when it is on the host itself."""
        return NodeNamespaces(self.layout, self.name) if self.record.own else None

    @property
    def trace_socket(self) -> Path:
        """The collector's, as the node sees it."""
        return trace_socket(self.layout, self.name) if self.record.own else self.layout.trace_socket

    @property
    def runtime(self) -> runtime.Options:
        """As the node sees it."""
        return runtime_on_node(self.layout, self.name) if self.record.own else runtime_on_host(self.layout)

    @property
    def ips(self) -> tuple[str, ...]:
        """The addresses that it registers with."""
        if not self.record.own:
            return self.host_ips
        return tuple(str(address.ip) for address in self.slot.addresses(self.record.number, ipv6=self.ipv6))

    @property
    def pod_ranges(self) -> tuple[Network, ...]:
        return self.slot.pod_ranges(self.record.number, ipv6=self.ipv6)

    def called(self, component: str) -> str:
        """`runtime` of the first node, `runtime@node-2` of the second."""
        return component if self.record.number == 1 else f"{component}@{self.name}"


def trace_socket(layout: Layout, node: str) -> Path:
    """The collector's socket as a node in its own namespaces sees it."""
    return _ROOT.trace_socket if layout.home(node) == layout else _ROOT.prefix / node_mounts.SHARED / "trace.sock"


def planned(known: tuple[NodeRecord, ...], wanted: int | None, first: NodeRecord) -> tuple[NodeRecord, ...]:
    """What there is, or the first one, and as many more as are wanted."""
    there = known or (first,)
    numbers = range(len(there) + 1, (wanted or 0) + 1)
    return (*there, *(NodeRecord(name=f"node-{number}", number=number, own=True) for number in numbers))


def objection(known: tuple[NodeRecord, ...], wanted: int | None) -> str:
    """Why there cannot be as many nodes as are wanted; empty when there can."""
    if wanted is None:
        return ""
    if not 1 <= wanted <= MOST:
        return f"a cluster has between 1 and {MOST} nodes"
    if wanted < len(known):
        return f"this cluster has {len(known)} nodes, and none is taken away; `podwire down` it first"
    if wanted > 1 and not all(node.own for node in known):
        return "the node of this cluster is on the host itself, where there is room for one; `podwire down` it first"
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
