"""The nodes and what the pods on them hold, summed up as pods come and go, never counted anew for a decision."""

from collections import Counter
from collections.abc import Mapping, Sequence

from podwire.objects.nodes import Node
from podwire.scheduler.claims.cache import Book
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.resource_requests import Resources, amounts


class NodeInfo:
    """A node and the sums of its pods. Without `node` it is known only as the place of some pods."""

    __slots__ = (
        "allocatable", "images", "name", "node", "owners", "partial", "pods", "ports", "requested", "usage",
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
        self.partial: dict[str, PodInfo] = {}
        """The pods that say something about others."""

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels if self.node else {}

    def describe(self, node: Node | None) -> None:
        self.allocatable = amounts(node.status.allocatable) if node else {}
        self.node = node
        images = node.status.images if node else ()
        self.images = {name: each.size_bytes for each in images for name in each.names}

    def add(self, info: PodInfo) -> None:
        self.pods[info.pod.uid] = info
        self.requested.update(info.requests)
        self.usage.update(info.usage)
        for port in info.host_ports:
            self.ports.setdefault((port.protocol, port.port), Counter())[port.ip] += 1
        if info.owner:
            self.owners[info.owner] += 1
        if info.terms.anti_affinity or info.terms.preferred or info.terms.affinity:
            self.partial[info.pod.uid] = info

    def remove(self, uid: str) -> None:
        info = self.pods.pop(uid)
        self.partial.pop(uid, None)
        self.requested.subtract(info.requests)
        self.usage.subtract(info.usage)
        for port in info.host_ports:
            _less(self.ports[port.protocol, port.port], port.ip)
        if info.owner:
            _less(self.owners, info.owner)


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


class Snapshot:
    """Everything that a decision looks at."""

    def __init__(self) -> None:
        self.claims = Book()
        self._infos: dict[str, NodeInfo] = {}
        self._places: dict[str, NodeInfo] = {}
        self._nodes: Sequence[NodeInfo] | None = None

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """Those that are there, by name."""
        if self._nodes is None:
            there = (each for each in self._infos.values() if each.node is not None)
            self._nodes = sorted(there, key=lambda each: each.name)
        return self._nodes

    def node(self, name: str) -> Node | None:
        info = self._infos.get(name)
        return info.node if info else None

    def put_node(self, node: Node) -> None:
        """Raises ValueError for one whose allocatable cannot be read."""
        info = self._info(node.name)
        try:
            info.describe(node)
        finally:
            self._tidy(info)
            self._nodes = None

    def drop_node(self, name: str) -> None:
        if (info := self._infos.get(name)) is not None:
            info.describe(None)
            self._tidy(info)
            self._nodes = None

    def put_pod(self, info: PodInfo, node: str) -> None:
        """The pod is there, as it is now; wherever it was before."""
        self.drop_pod(info.pod.uid)
        place = self._info(node)
        place.add(info)
        self._places[info.pod.uid] = place

    def drop_pod(self, uid: str) -> PodInfo | None:
        """What was known of it; None when it held nothing."""
        place = self._places.pop(uid, None)
        if place is None:
            return None
        info = place.pods[uid]
        place.remove(uid)
        self._tidy(place)
        return info

    def place(self, uid: str) -> str:
        """The node where a pod is counted; empty when it is nowhere."""
        place = self._places.get(uid)
        return place.name if place else ""

    def _info(self, name: str) -> NodeInfo:
        if name not in self._infos:
            self._infos[name] = NodeInfo(name)
        return self._infos[name]

    def _tidy(self, info: NodeInfo) -> None:
        if info.node is None and not info.pods:
            self._infos.pop(info.name, None)
