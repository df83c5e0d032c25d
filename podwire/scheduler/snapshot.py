"""Nodes and the sums of their pods, updated incrementally as pods come and go."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence

from podwire.objects.nodes import Node
from podwire.scheduler.claims.cache import ClaimCache
from podwire.scheduler.pod_index import PodIndex
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

    def set_node(self, node: Node | None) -> bool:
        """Replaces the object. Returns whether anything that decisions depend on has changed: a heartbeat is not."""
        before = self.node
        if node is not None and before is not None and _decisive(node) == _decisive(before):
            self.node = node
            return False
        self.allocatable = amounts(node.status.allocatable) if node else {}
        self.node = node
        images = node.status.images if node else ()
        self.images = {name: image.size_bytes for image in images for name in image.names}
        return node is not before

    def add(self, info: PodInfo) -> None:
        self.pods[info.pod.uid] = info
        self.requested.update(info.requests)
        self.usage.update(info.usage)
        for port in info.host_ports:
            self.ports.setdefault((port.protocol, port.port), Counter())[port.ip] += 1
        if info.owner:
            self.owners[info.owner] += 1
        if info.has_terms:
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


def _decisive(node: Node) -> tuple[object, ...]:
    """Returns the fields of a node that filters and scores look at."""
    return node.metadata.name, node.metadata.labels, node.spec, node.status.allocatable, node.status.images


def _decrement(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


MAX_CHANGES = 20_000
"""Changes of nodes that are remembered for caches of decisions."""


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
        self._image_nodes: Counter[str] = Counter()
        self._label_counts: dict[frozenset[str], Mapping[str, Counter[str]]] = {}
        self._index = PodIndex(self._infos)
        self._replaced: tuple[NodeInfo, NodeInfo] | None = None
        """In a hypothetical snapshot, the node as it is and as it is assumed to be."""
        self._changes: list[str] = []
        self._changes_dropped = 0

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """The existing nodes, by name."""
        if self._nodes is None:
            there = (node_info for node_info in self._infos.values() if node_info.node is not None)
            self._nodes = sorted(there, key=lambda item: item.name)
        return self._nodes

    @property
    def pod_index(self) -> PodIndex:
        """The pods by labels and by terms. One of a hypothetical snapshot is valid until the node changes again."""
        return self._index.replaced(*self._replaced) if self._replaced is not None else self._index

    def nodes_with_image(self, name: str) -> int:
        return self._image_nodes[name]

    def label_counts(self, keys: frozenset[str]) -> Mapping[str, Counter[str]]:
        """Returns, for the nodes that have all these labels, the number of nodes by value, for each label."""
        counts = self._label_counts.get(keys)
        if counts is None:
            labelled = [node.labels for node in self.nodes if keys <= node.labels.keys()]
            counts = self._label_counts[keys] = {key: Counter(labels[key] for labels in labelled) for key in keys}
        return counts

    def changes_since(self, position: int) -> tuple[set[str] | None, int]:
        """Returns the names of nodes that have changed since a position, and the position now; None if they are not
        known any more."""
        now = self._changes_dropped + len(self._changes)
        if position < self._changes_dropped:
            return None, now
        return set(self._changes[position - self._changes_dropped :]), now

    def node(self, name: str) -> Node | None:
        info = self._infos.get(name)
        return info.node if info else None

    def node_info(self, name: str) -> NodeInfo | None:
        return self._infos.get(name)

    def with_node(self, info: NodeInfo) -> "Snapshot":
        """Returns a snapshot for filters in which one existing node has other pods. It is not updated with this one."""
        hypothetical = copy.copy(self)
        hypothetical.replace_node(info)
        return hypothetical

    def replace_node(self, info: NodeInfo) -> None:
        """Replaces an existing node with its pods, in this copy of a snapshot only."""
        self._replaced = (self._infos[info.name], info)
        self._infos = {**self._infos, info.name: info}
        self._nodes = [info if node.name == info.name else node for node in self.nodes]

    def put_node(self, node: Node) -> None:
        """Stores a node; raises ValueError if its allocatable cannot be parsed."""
        self._set_node(self._info(node.name), node)

    def drop_node(self, name: str) -> None:
        if (info := self._infos.get(name)) is not None:
            self._set_node(info, None)

    def _set_node(self, info: NodeInfo, node: Node | None) -> None:
        existed, labels, images = info.node is not None, info.labels, info.images
        try:
            if not info.set_node(node):
                return
        finally:
            self._remove_if_empty(info)
            if (info.node is not None) != existed:
                self._nodes = None
        if info.images != images:
            for name in images:
                _decrement(self._image_nodes, name)
            self._image_nodes.update(info.images.keys())
        if info.labels != labels:
            self._label_counts.clear()
            if info.pods:
                self._index.labels_changed()
        self._changed(info)

    def put_pod(self, info: PodInfo, node: str) -> None:
        """Counts the pod on a node, and no longer on its previous one."""
        self.drop_pod(info.pod.uid)
        location = self._info(node)
        location.add(info)
        self._index.add(info, node)
        self._locations[info.pod.uid] = location
        self._changed(location)

    def drop_pod(self, uid: str) -> PodInfo | None:
        """Removes a pod; returns its info, or None if it was not counted."""
        location = self._locations.pop(uid, None)
        if location is None:
            return None
        info = location.pods[uid]
        location.remove(uid)
        self._index.remove(info, location.name)
        self._remove_if_empty(location)
        self._changed(location)
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

    def _changed(self, info: NodeInfo) -> None:
        self._changes.append(info.name)
        if len(self._changes) > MAX_CHANGES:
            self._changes_dropped += MAX_CHANGES // 2
            del self._changes[: MAX_CHANGES // 2]
