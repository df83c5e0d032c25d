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


@dataclass(frozen=True, slots=True)
class Score:
    name: str
    weight: int
    rate: Rate


def taint_toleration(pod: PodInfo, _snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Prefers nodes with fewer PreferNoSchedule taints that the pod does not tolerate."""
    counts = [_soft_taints(pod, node) for node in nodes]
    most = max(counts)
    return [MAX_SCORE - MAX_SCORE * count // most for count in counts] if most else None


def _soft_taints(pod: PodInfo, node: NodeInfo) -> int:
    given = node.node.spec.taints if node.node else ()
    return sum(1 for _ in taints.untolerated(given, pod.pod.spec.tolerations, taints.SOFT)) if given else 0


def preferred_node_affinity(pod: PodInfo, _snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    wishes = node_affinity.preferred(pod.pod.spec)
    if not wishes:
        return None
    sums = [sum(weight for weight, wanted in wishes if node.node and wanted(node.node)) for node in nodes]
    most = max(sums)
    return [MAX_SCORE * total // most for total in sums] if most else None


def allocation_score(weights: Mapping[str, int], *, most: bool) -> Rate:
    """Returns a score by the allocated shares of these resources, by weight; `most` prefers full nodes."""

    def share(pod: PodInfo, node: NodeInfo, name: str, has: int) -> int:
        measured = (node.usage, pod.usage) if name in (CPU, MEMORY) else (node.requested, pod.requests)
        allocated = min(measured[0][name] + measured[1].get(name, 0), has)
        return (allocated if most else has - allocated) * MAX_SCORE // has

    def rate(pod: PodInfo, _snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int]:
        totals = []
        for node in nodes:
            parts = [
                (share(pod, node, name, has), weight)
                for name, weight in weights.items()
                if (has := node.allocatable.get(name, 0))
            ]
            whole = sum(weight for _share, weight in parts)
            totals.append(sum(part * weight for part, weight in parts) // whole if whole else 0)
        return totals

    return rate


def least_allocated(pod: PodInfo, _snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int]:
    return [_free(pod, node) for node in nodes]


def _free(pod: PodInfo, node: NodeInfo) -> int:
    """Returns the free share of cpu and memory, in percent."""
    parts = []
    for name in (CPU, MEMORY):
        if has := node.allocatable.get(name, 0):
            held = node.usage[name] + pod.usage.get(name, 0)
            parts.append(max(has - held, 0) * MAX_SCORE // has)
    return sum(parts) // len(parts) if parts else 0


def balanced_allocation(pod: PodInfo, _snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Prefers balanced cpu and memory usage; skipped for a pod that requests neither."""
    if not pod.requests.get(CPU) and not pod.requests.get(MEMORY):
        return None
    return [_balance(pod, node) for node in nodes]


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


def image_locality(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Prefers nodes that have large images already, weighted by how many nodes have them, so that no node runs hot."""
    spec = pod.pod.spec
    names = [_tagged(init_container.image) for init_container in (*spec.init_containers, *spec.containers)]
    there = snapshot.nodes
    spread = {name: sum(1 for node in there if name in node.images) / len(there) for name in set(names)}
    if not any(spread.values()):
        return None
    most = LARGE * len(names)
    sums = [sum(int(node.images.get(name, 0) * spread[name]) for name in names) for node in nodes]
    return [MAX_SCORE * (min(max(total, SMALL), most) - SMALL) // (most - SMALL) for total in sums]


def _tagged(image: str) -> str:
    """Normalizes an image name as nodes list it: `latest` without a tag or digest."""
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


SCORES = (
    Score("TaintToleration", 3, taint_toleration),
    Score("NodeAffinity", 2, preferred_node_affinity),
    Score("NodeResourcesFit", 1, least_allocated),
    Score("PodTopologySpread", 2, topology_spread.score),
    Score("InterPodAffinity", 2, inter_pod_affinity.score),
    Score("DynamicResources", 2, claims.score),
    Score("NodeResourcesBalancedAllocation", 1, balanced_allocation),
    Score("ImageLocality", 1, image_locality),
)
