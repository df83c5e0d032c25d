"""Runs the filters on nodes, counting the pods that are nominated to them."""

from collections.abc import Sequence

from podwire.scheduler.framework import Filter, NodeFilter, Reasons, Rejected, Unresolvable
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

NodeFilters = Sequence[tuple[Filter, NodeFilter]]
Failure = tuple[Filter, Reasons]
"""The first filter that a node failed, with its reasons."""


class NoNodeFits(Exception):
    """Raised while filters are prepared: no node can fit, regardless of its state."""

    def __init__(self, filter_: Filter, rejected: Rejected) -> None:
        super().__init__(rejected.why)
        self.filter, self.rejected = filter_, rejected


def prepare(pod: PodInfo, snapshot: Snapshot, filters: Sequence[Filter]) -> NodeFilters:
    """Lets each filter look at the pod; raises NoNodeFits."""
    node_filters: list[tuple[Filter, NodeFilter]] = []
    for filter_ in filters:
        node_filter = filter_.prepare(pod, snapshot)
        if isinstance(node_filter, Rejected):
            raise NoNodeFits(filter_, node_filter)
        if node_filter is not None:
            node_filters.append((filter_, node_filter))
    return node_filters


def first_failure(node: NodeInfo, node_filters: NodeFilters) -> Failure | None:
    for filter_, node_filter in node_filters:
        if reasons := node_filter(node):
            return filter_, reasons
    return None


def failure_on(
    pod: PodInfo, snapshot: Snapshot, node: NodeInfo, filters: Sequence[Filter], prepared: NodeFilters | None = None
) -> Failure | None:
    """Runs all filters on one node, with the pods that are nominated to it and without them.

    Both must pass: a nominated pod may never arrive, and affinity to it must not be relied on. Pods of lower priority
    have to give way, so that their nominations do not count.
    """
    nominated = [
        info
        for info in snapshot.nominations.on(node.name)
        if info.pod.spec.priority >= pod.pod.spec.priority and info.pod.uid != pod.pod.uid
    ]
    try:
        if nominated:
            fuller = node.copy()
            for info in nominated:
                fuller.add(info)
            if failure := first_failure(fuller, prepare(pod, snapshot.with_node(fuller), filters)):
                return failure
        return first_failure(node, prepare(pod, snapshot, filters) if prepared is None else prepared)
    except NoNodeFits as error:
        return error.filter, Unresolvable((error.rejected.why,))
