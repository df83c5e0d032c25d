"""The scores with upstream's weights: each rates the remaining nodes from 0 to 100."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from podwire.objects import node_affinity, taints
from podwire.scheduler import inter_pod_affinity, topology_spread
from podwire.scheduler.claims import dynamic_resources as claims
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.resource_requests import CPU, MEMORY
from podwire.scheduler.snapshot import NodeInfo, Snapshot

MAX_SCORE = 100

Rate = Callable[[PodInfo, Snapshot, Sequence[NodeInfo]], Sequence[int] | None]
"""Returns one rating per node; None when it makes no difference for this pod."""


class NotLocal(Exception):
    """The rating of a node depends on the pods of others."""


@dataclass(frozen=True, slots=True)
class NodeRating:
    """A rating that depends on the pod and on one node with its pods."""

    of: Callable[[NodeInfo], int]
    normalize: Callable[[Sequence[int], int], Sequence[int] | None] | None = None
    """Turns the values of all nodes that fit, without repetition or with it, and their number into ratings; None: the
    values are the ratings."""


Local = Callable[[PodInfo, Snapshot], NodeRating | None]
"""Returns None when it makes no difference for this pod; raises NotLocal."""


@dataclass(frozen=True, slots=True)
class Score:
    name: str
    weight: int
    local: Local
    rate_all: Rate | None = None
    """Rates nodes where the rating is not local."""

    def rate(self, pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
        try:
            rating = self.local(pod, snapshot)
        except NotLocal:
            return self.rate_all(pod, snapshot, nodes) if self.rate_all else None
        return rate_each(rating, nodes)

    def is_local(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Whether nodes can be rated one by one for this pod, by what other pods request now."""
        if self.rate_all is None:
            return True
        try:
            self.local(pod, snapshot)
        except NotLocal:
            return False
        return True


def rate_each(rating: NodeRating | None, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    if rating is None:
        return None
    values = [rating.of(node) for node in nodes]
    return values if rating.normalize is None else rating.normalize(values, len(nodes))


def taint_toleration(pod: PodInfo, _snapshot: Snapshot) -> NodeRating:
    """Prefers nodes with fewer PreferNoSchedule taints that the pod does not tolerate."""
    return NodeRating(lambda node: _soft_taints(pod, node), _fewest)


def _soft_taints(pod: PodInfo, node: NodeInfo) -> int:
    given = node.node.spec.taints if node.node else ()
    return sum(1 for _ in taints.untolerated(given, pod.pod.spec.tolerations, taints.SOFT)) if given else 0


def _fewest(counts: Sequence[int], _nodes: int) -> Sequence[int] | None:
    most = max(counts)
    return [MAX_SCORE - MAX_SCORE * count // most for count in counts] if most else None


def preferred_node_affinity(pod: PodInfo, _snapshot: Snapshot) -> NodeRating | None:
    wishes = node_affinity.preferred(pod.pod.spec)
    if not wishes:
        return None

    def weight_of(node: NodeInfo) -> int:
        return sum(weight for weight, wanted in wishes if node.node and wanted(node.node))

    return NodeRating(weight_of, _highest)


def _highest(sums: Sequence[int], _nodes: int) -> Sequence[int] | None:
    most = max(sums)
    return [MAX_SCORE * total // most for total in sums] if most else None


def allocation_score(weights: Mapping[str, int], *, most: bool) -> Local:
    """Returns a score by the allocated shares of these resources, by weight; `most` prefers full nodes."""

    def share(pod: PodInfo, node: NodeInfo, name: str, has: int) -> int:
        measured = (node.usage, pod.usage) if name in (CPU, MEMORY) else (node.requested, pod.requests)
        allocated = min(measured[0][name] + measured[1].get(name, 0), has)
        return (allocated if most else has - allocated) * MAX_SCORE // has

    def rate(pod: PodInfo, node: NodeInfo) -> int:
        parts = [
            (share(pod, node, name, has), weight)
            for name, weight in weights.items()
            if (has := node.allocatable.get(name, 0))
        ]
        whole = sum(weight for _share, weight in parts)
        return sum(part * weight for part, weight in parts) // whole if whole else 0

    return lambda pod, _snapshot: NodeRating(lambda node: rate(pod, node))


def least_allocated(pod: PodInfo, _snapshot: Snapshot) -> NodeRating:
    return NodeRating(lambda node: _free(pod, node))


def _free(pod: PodInfo, node: NodeInfo) -> int:
    """Returns the free share of cpu and memory, in percent."""
    parts = []
    for name in (CPU, MEMORY):
        if has := node.allocatable.get(name, 0):
            held = node.usage[name] + pod.usage.get(name, 0)
            parts.append(max(has - held, 0) * MAX_SCORE // has)
    return sum(parts) // len(parts) if parts else 0


def balanced_allocation(pod: PodInfo, _snapshot: Snapshot) -> NodeRating | None:
    """Prefers balanced cpu and memory usage; skipped for a pod that requests neither."""
    if not pod.requests.get(CPU) and not pod.requests.get(MEMORY):
        return None
    return NodeRating(lambda node: _balance(pod, node))


def _balance(pod: PodInfo, node: NodeInfo) -> int:
    shares = [
        min((node.requested[name] + pod.requests.get(name, 0)) / has, 1.0)
        for name in (CPU, MEMORY)
        if (has := node.allocatable.get(name, 0))
    ]
    deviation = abs(shares[0] - shares[1]) / 2 if len(shares) == 2 else 0.0
    return int((1 - deviation) * MAX_SCORE)


_MEGABYTE = 1024 * 1024
SMALL, LARGE = 23 * _MEGABYTE, 1000 * _MEGABYTE
"""Smaller images load at once; larger ones (per container) make no further difference."""


def image_locality(pod: PodInfo, snapshot: Snapshot) -> NodeRating | None:
    """Prefers nodes that have large images already, weighted by how many nodes have them, so that no node runs hot."""
    names = tagged_images(pod)
    there = len(snapshot.nodes)
    spread = {name: snapshot.nodes_with_image(name) / there for name in set(names)}
    if not any(spread.values()):
        return None
    most = LARGE * len(names)

    def rate(node: NodeInfo) -> int:
        total = sum(int(node.images.get(name, 0) * spread[name]) for name in names)
        return MAX_SCORE * (min(max(total, SMALL), most) - SMALL) // (most - SMALL)

    return NodeRating(rate)


def tagged_images(pod: PodInfo) -> list[str]:
    """Returns the images of a pod as nodes list them."""
    spec = pod.pod.spec
    return [_tagged(container.image) for container in (*spec.init_containers, *spec.containers)]


def _tagged(image: str) -> str:
    """Normalizes an image name as nodes list it: `latest` without a tag or digest."""
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


def spread_by_owner(pod: PodInfo, _snapshot: Snapshot) -> NodeRating | None:
    """Without topology spread constraints, pods of one owner are spread by host."""
    if topology_spread.prefers_domains(pod):
        raise NotLocal
    if pod.pod.spec.topology_spread_constraints or not pod.owner:
        return None
    return NodeRating(lambda node: node.owners[pod.owner], topology_spread.normalize_owned)


def pod_affinity(pod: PodInfo, snapshot: Snapshot) -> None:
    if inter_pod_affinity.prefers_domains(pod, snapshot):
        raise NotLocal


def device_preference(pod: PodInfo, snapshot: Snapshot) -> None:
    if claims.prefers_devices(pod, snapshot):
        raise NotLocal


SCORES = (
    Score("TaintToleration", 3, taint_toleration),
    Score("NodeAffinity", 2, preferred_node_affinity),
    Score("NodeResourcesFit", 1, least_allocated),
    Score("PodTopologySpread", 2, spread_by_owner, topology_spread.score),
    Score("InterPodAffinity", 2, pod_affinity, inter_pod_affinity.score),
    Score("DynamicResources", 2, device_preference, claims.score),
    Score("NodeResourcesBalancedAllocation", 1, balanced_allocation),
    Score("ImageLocality", 1, image_locality),
)
