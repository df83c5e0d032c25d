"""Chooses the node of a pod, or explains why no node fits.

No I/O, no clock, no randomness: the same pod and snapshot always give the same result. Filters remove nodes in
upstream's order, scores rank the rest (see filters.py and scores.py).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podwire.scheduler.filters import FILTERS, POST_FILTERS
from podwire.scheduler.framework import ANYTHING, NOTHING, ClusterEvent, Filter, FilterAborted, NodeFilter, Rejected
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.scores import SCORES
from podwire.scheduler.snapshot import NodeInfo, Snapshot

NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class Chosen:
    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    message: str
    retry_on: ClusterEvent
    """Cluster events after which the pod is worth another attempt."""
    quiet: bool = False
    """Users need no Event: another component is already working on it."""


def choose(pod: PodInfo, snapshot: Snapshot) -> Chosen | Unschedulable:
    nodes = snapshot.nodes
    if not nodes:
        return Unschedulable(NO_NODES, ClusterEvent.NODE)
    node_filters: list[tuple[Filter, NodeFilter]] = []
    for filter_ in FILTERS:
        node_filter = filter_.prepare(pod, snapshot)
        if isinstance(node_filter, Rejected):
            return Unschedulable(_message(pod, snapshot, node_filter.why), filter_.retry_on, quiet=node_filter.quiet)
        if node_filter is not None:
            node_filters.append((filter_, node_filter))
    try:
        fitting, failed = _filter_nodes(nodes, node_filters)
    except FilterAborted as error:
        return Unschedulable(_message(pod, snapshot, str(error)), ANYTHING | ClusterEvent.DEVICES)
    if fitting:
        return Chosen(_best(pod, snapshot, fitting).name)
    retry_on = NOTHING
    for filter_, _node, _reasons in failed:
        retry_on |= filter_.retry_on
    reasons = Counter(reason for _filter, _node, of_node in failed for reason in of_node)
    histogram = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return Unschedulable(_message(pod, snapshot, histogram, _details(pod, snapshot, failed)), retry_on)


_Failed = tuple[Filter, NodeInfo, Sequence[str]]


def _filter_nodes(
    nodes: Iterable[NodeInfo], node_filters: Sequence[tuple[Filter, NodeFilter]]
) -> tuple[list[NodeInfo], list[_Failed]]:
    """Returns the nodes that pass, and for each other one the filter that it failed with the reasons."""
    fitting, failed = [], []
    for node in nodes:
        for filter_, node_filter in node_filters:
            if reasons := node_filter(node):
                failed.append((filter_, node, reasons))
                break
        else:
            fitting.append(node)
    return fitting, failed


def _details(pod: PodInfo, snapshot: Snapshot, failed: Sequence[_Failed]) -> str:
    """Returns what filters add to their reasons, in sentences."""
    sentences = [
        filter_.explain(pod, snapshot, nodes)
        for filter_ in FILTERS
        if filter_.explain is not None and (nodes := [node for by, node, _reasons in failed if by is filter_])
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _message(pod: PodInfo, snapshot: Snapshot, why: str, details: str = "") -> str:
    afterwards = " ".join(reason.explain(pod, snapshot) for reason in POST_FILTERS)
    sentences = (f"0/{len(snapshot.nodes)} nodes are available: {why}.", details, afterwards)
    return " ".join(sentence for sentence in sentences if sentence)


def _best(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> NodeInfo:
    """Returns the node with the highest score; ties go to fewer pods, then to the name."""
    if len(nodes) == 1:
        return nodes[0]
    totals = [0] * len(nodes)
    for score in SCORES:
        for index, rating in enumerate(score.rate(pod, snapshot, nodes) or ()):
            totals[index] += score.weight * rating
    rated = zip(totals, nodes, strict=True)
    return min(rated, key=lambda pair: (-pair[0], len(pair[1].pods), pair[1].name))[1]
