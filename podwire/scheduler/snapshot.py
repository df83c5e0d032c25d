"""Nodes and the sums of their pods, updated incrementally as pods come and go."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence

from podwire.objects.nodes import Node
from podwire.scheduler.claims.cache import ClaimCache
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.preemption.budgets import Budget
from podwire.scheduler.preemption.nominations import Nominations
from podwire.scheduler.resource_requests import Resources, amounts
from podwire.scheduler.volumes.cache import VolumeCache


class NodeInfo:
    """A node and the sums of its pods; `node` is None while only pods name it."""

    __slots__ = (
        "allocatable",
        "images",
        "name",
        "node",
        "owners",
        "pods",
        "ports",
        "requested",
        "usage",
        "with_affinity",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.allocatable: Resources = {}
        self.images: Mapping[str, int] = {}
        self.pods: dict[str, PodInfo] = {}
        self.requested: Counter[str] = Counter()
        self.usage: Counter[str] = Counter()
        self.ports: dict[tuple[str, int], Counter[str]] = {}
        self.owners: Counter[str] = Counter()
        self.with_affinity: dict[str, PodInfo] = {}
        """Pods with affinity or anti-affinity terms."""

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels if self.node else {}

    def set_node(self, node: Node | None) -> None:
        self.allocatable = amounts(node.status.allocatable) if node else {}
        self.node = node
        images = node.status.images if node else ()
        self.images = {name: image.size_bytes for image in images for name in image.names}

    def add(self, info: PodInfo) -> None:
        self.pods[info.pod.uid] = info
        self.requested.update(info.requests)
        self.usage.update(info.usage)
        for port in info.host_ports:
            self.ports.setdefault((port.protocol, port.port), Counter())[port.ip] += 1
        if info.owner:
            self.owners[info.owner] += 1
        if info.terms.anti_affinity or info.terms.preferred or info.terms.affinity:
            self.with_affinity[info.pod.uid] = info

    def copy(self) -> "NodeInfo":
        """Returns the same node and pods; pods that come and go afterwards count in one of the two only."""
        other = copy.copy(self)
        other.pods, other.with_affinity = self.pods.copy(), self.with_affinity.copy()
        other.requested, other.usage, other.owners = self.requested.copy(), self.usage.copy(), self.owners.copy()
        other.ports = {key: addresses.copy() for key, addresses in self.ports.items()}
        return other

    def remove(self, uid: str) -> None:
        info = self.pods.pop(uid)
        self.with_affinity.pop(uid, None)
        self.requested.subtract(info.requests)
        self.usage.subtract(info.usage)
        for port in info.host_ports:
            _decrement(self.ports[port.protocol, port.port], port.ip)
        if info.owner:
            _decrement(self.owners, info.owner)


def _decrement(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


class Snapshot:
    """All inputs of a decision."""

    def __init__(self) -> None:
        self.claims = ClaimCache()
        self.volumes = VolumeCache()
        self.budgets: dict[tuple[str, str], Budget] = {}
        """PodDisruptionBudgets by namespace and name."""
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """The labels of namespaces, by name."""
        self.nominations = Nominations()
        self.victims: set[str] = set()
        """Pods that were chosen to be preempted and are still there."""
        self._infos: dict[str, NodeInfo] = {}
        self._locations: dict[str, NodeInfo] = {}
        self._nodes: Sequence[NodeInfo] | None = None

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """The existing nodes, by name."""
        if self._nodes is None:
            there = (node_info for node_info in self._infos.values() if node_info.node is not None)
            self._nodes = sorted(there, key=lambda item: item.name)
        return self._nodes

    def node(self, name: str) -> Node | None:
        info = self._infos.get(name)
        return info.node if info else None

    def node_info(self, name: str) -> NodeInfo | None:
        return self._infos.get(name)

    def with_node(self, info: NodeInfo) -> "Snapshot":
        """Returns a snapshot for filters in which one node has other pods. It is not updated with this one."""
        hypothetical = copy.copy(self)
        hypothetical.replace_node(info)
        return hypothetical

    def replace_node(self, info: NodeInfo) -> None:
        """Replaces an existing node with its pods, in this copy of a snapshot only."""
        self._infos = {**self._infos, info.name: info}
        self._nodes = [info if node.name == info.name else node for node in self.nodes]

    def put_node(self, node: Node) -> None:
        """Stores a node; raises ValueError if its allocatable cannot be parsed."""
        info = self._info(node.name)
        try:
            info.set_node(node)
        finally:
            self._remove_if_empty(info)
            self._nodes = None

    def drop_node(self, name: str) -> None:
        if (info := self._infos.get(name)) is not None:
            info.set_node(None)
            self._remove_if_empty(info)
            self._nodes = None

    def put_pod(self, info: PodInfo, node: str) -> None:
        """Counts the pod on a node, and no longer on its previous one."""
        self.drop_pod(info.pod.uid)
        location = self._info(node)
        location.add(info)
        self._locations[info.pod.uid] = location

    def drop_pod(self, uid: str) -> PodInfo | None:
        """Removes a pod; returns its info, or None if it was not counted."""
        location = self._locations.pop(uid, None)
        if location is None:
            return None
        info = location.pods[uid]
        location.remove(uid)
        self._remove_if_empty(location)
        return info

    def node_of(self, uid: str) -> str:
        """Returns the node on which a pod counts; empty for none."""
        location = self._locations.get(uid)
        return location.name if location else ""

    def _info(self, name: str) -> NodeInfo:
        if name not in self._infos:
            self._infos[name] = NodeInfo(name)
        return self._infos[name]

    def _remove_if_empty(self, info: NodeInfo) -> None:
        if info.node is None and not info.pods:
            self._infos.pop(info.name, None)
