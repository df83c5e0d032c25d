"""Remembers decisions between similar pods, so that the cost of one does not grow with the number of nodes.

Two pods are equivalent if local filters and scores, which look at one node at a time, cannot tell them apart: the pods
of one ReplicaSet are. For a class of equivalent pods the cache keeps the nodes that fit, best first. Placing a pod
changes one node; the next decision for the class filters and rates the changed nodes again, and all others stay as they
are. Filters that look beyond one node (affinity to other pods, topology spread, claims, volumes) are then asked about
the nodes in this order: the first that passes is the best of all nodes.

Scores that look beyond one node would change the order, so pods with preferred affinity to others, with soft spread
constraints or with alternatives in claims have no class. Their decisions search nodes until enough fit, as upstream's
do (`percentageOfNodesToScore`).

A score that is relative to other nodes (the fewest pods of the same owner) is known up to its normalization. Nodes with
the same values of all relative scores share a heap; heaps are compared after normalization.
"""

import contextlib
import heapq
from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import msgspec

from podwire.scheduler.feasibility import NodeFilters, first_failure
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.profiles import Profile
from podwire.scheduler.scores import NodeRating, tagged_images
from podwire.scheduler.snapshot import NodeInfo, Snapshot

MAX_CLASSES = 16
MAX_SIGNATURES = 256
MIN_FEASIBLE_NODES = 100
MIN_PERCENTAGE, MAX_PERCENTAGE = 5, 50

Values = tuple[int, ...]
"""The values of a node by the relative scores."""
Entry = tuple[int, int, str, int]
"""Sorts the best node first: negative rating, number of pods, name; and a serial number that makes it unique."""


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Returns how many nodes that fit are enough; by default the larger the cluster, the smaller the part."""
    if nodes <= MIN_FEASIBLE_NODES or percentage >= 100:
        return nodes
    part = percentage or max(MIN_PERCENTAGE, MAX_PERCENTAGE - nodes // 125)
    return max(MIN_FEASIBLE_NODES, nodes * part // 100)


@dataclass(slots=True)
class _Heap:
    entries: list[Entry] = field(default_factory=list)
    """With entries that are out of date."""
    nodes: int = 0


class _EquivalenceClass:
    """The nodes that fit pods of one signature."""

    def __init__(self, node_filters: NodeFilters, ratings: Sequence[tuple[int, NodeRating]]) -> None:
        self._filters = node_filters
        self._absolute = [(weight, rating.of) for weight, rating in ratings if rating.normalize is None]
        self._relative = [
            (weight, rating.of, rating.normalize) for weight, rating in ratings if rating.normalize is not None
        ]
        self._position = -1
        self._heaps: dict[Values, _Heap] = {}
        self._current: dict[str, tuple[Values, Entry]] = {}
        self._serial = 0

    def update(self, snapshot: Snapshot) -> None:
        """Filters and rates the nodes that have changed; all nodes if it is not known which ones have."""
        changed, self._position = snapshot.changes_since(self._position)
        if changed is None:
            self._heaps, self._current = {}, {}
            changed = {node.name for node in snapshot.nodes}
        for name in changed:
            self._drop(name)
            node = snapshot.node_info(name)
            if node is not None and node.node is not None and first_failure(node, self._filters) is None:
                self._put(node)

    def _drop(self, name: str) -> None:
        if (known := self._current.pop(name, None)) is not None:
            heap = self._heaps[known[0]]
            heap.nodes -= 1
            if not heap.nodes:
                del self._heaps[known[0]]

    def _put(self, node: NodeInfo) -> None:
        values = tuple(value_of(node) for _weight, value_of, _normalize in self._relative)
        rating = sum(weight * rate(node) for weight, rate in self._absolute)
        self._serial += 1
        entry = (-rating, len(node.pods), node.name, self._serial)
        heap = self._heaps.setdefault(values, _Heap())
        heap.nodes += 1
        heapq.heappush(heap.entries, entry)
        if len(heap.entries) > 2 * heap.nodes + MIN_FEASIBLE_NODES:
            heap.entries = [*(current for in_, current in self._current.values() if in_ == values), entry]
            heapq.heapify(heap.entries)
        self._current[node.name] = (values, entry)

    def in_order(self) -> Generator[str, None, None]:
        """Yields the names of nodes that fit, the best first. The class must not be updated meanwhile."""
        bonuses = self._bonuses()
        tops = [
            (top[0] - bonuses[values], top[1], top[2], values)
            for values, heap in self._heaps.items()
            if (top := self._top(heap)) is not None
        ]
        heapq.heapify(tops)
        taken: list[tuple[_Heap, Entry]] = []
        try:
            while tops:
                _rating, _pods, name, values = tops[0]
                yield name
                heap = self._heaps[values]
                taken.append((heap, heapq.heappop(heap.entries)))
                if (top := self._top(heap)) is None:
                    heapq.heappop(tops)
                else:
                    heapq.heapreplace(tops, (top[0] - bonuses[values], top[1], top[2], values))
        finally:
            for heap, entry in taken:
                heapq.heappush(heap.entries, entry)

    def _bonuses(self) -> dict[Values, int]:
        """Returns what relative scores add to the ratings of each heap."""
        bonuses = dict.fromkeys(self._heaps, 0)
        for at, (weight, _value_of, normalize) in enumerate(self._relative):
            different = sorted({values[at] for values in self._heaps})
            ratings = normalize(different, len(self._current)) if different else None
            if ratings is not None:
                by_value = dict(zip(different, ratings, strict=True))
                for values in bonuses:
                    bonuses[values] += weight * by_value[values[at]]
        return bonuses

    def _top(self, heap: _Heap) -> Entry | None:
        while heap.entries:
            entry = heap.entries[0]
            if (known := self._current.get(entry[2])) is not None and known[1] is entry:
                return entry
            heapq.heappop(heap.entries)
        return None


class DecisionCache:
    """Belongs to one snapshot and its scheduler."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._classes: OrderedDict[bytes, _EquivalenceClass] = OrderedDict()
        self.next_start = 0
        """The node at which the next search starts: each continues where the previous one has ended."""

    def best(self, pod: PodInfo, snapshot: Snapshot, profile: Profile, node_filters: NodeFilters) -> str | None:
        """Returns the best node by the class of the pod; None if it has no class, or if no node fits."""
        found = self._class(pod, snapshot, profile, node_filters)
        if found is None:
            return None
        found.update(snapshot)
        beyond = [(filter_, node_filter) for filter_, node_filter in node_filters if not filter_.local]
        with contextlib.closing(found.in_order()) as names:
            for name in names:
                node = snapshot.node_info(name)
                if node is not None and first_failure(node, beyond) is None:
                    return name
        return None

    def _class(
        self, pod: PodInfo, snapshot: Snapshot, profile: Profile, node_filters: NodeFilters
    ) -> _EquivalenceClass | None:
        if not all(score.is_local(pod, snapshot) for score in profile.scores):
            return None
        signature = _signature(pod, snapshot, profile)
        known = self._classes.get(signature)
        if known is None:
            if not self._is_frequent(signature, len(snapshot.nodes), profile):
                return None
            local = [(filter_, node_filter) for filter_, node_filter in node_filters if filter_.local]
            ratings = [(score.weight, score.local(pod, snapshot)) for score in profile.scores]
            known = _EquivalenceClass(local, [(weight, rating) for weight, rating in ratings if rating])
            self._classes[signature] = known
            if len(self._classes) > MAX_CLASSES:
                self._classes.popitem(last=False)
        self._classes.move_to_end(signature)
        return known

    def _is_frequent(self, signature: bytes, nodes: int, profile: Profile) -> bool:
        """A class costs as much as a decision over all nodes, so it is made when that many nodes were looked at."""
        count = self._seen.pop(signature, 0) + 1
        if count * nodes_to_find(nodes, profile.percentage_of_nodes) > nodes:
            return True
        self._seen[signature] = count
        if len(self._seen) > MAX_SIGNATURES:
            self._seen.popitem(last=False)
        return False


def _signature(pod: PodInfo, snapshot: Snapshot, profile: Profile) -> bytes:
    """Returns a value that is equal for pods which local filters and scores cannot tell apart."""
    spec = pod.pod.spec
    images = [(name, count) for name in tagged_images(pod) if (count := snapshot.nodes_with_image(name))]
    return msgspec.json.encode(
        (
            profile.name,
            spec.node_name,
            spec.tolerations,
            spec.node_selector,
            (spec.affinity or {}).get("nodeAffinity"),
            pod.requests,
            pod.usage,
            pod.host_ports,
            pod.owner,
            (images, len(snapshot.nodes)) if images else None,
        )
    )
