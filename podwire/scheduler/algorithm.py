"""Chooses the node of a pod, or explains why no node fits.

No I/O, no clock, no randomness: the same pod, snapshot and cache always give the same result. Filters remove nodes in
upstream's order, scores rank the rest (see filters.py and scores.py). If no node is left, pods of lower priority may be
preempted (see preemption/).
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podwire.scheduler.decision_cache import DecisionCache, nodes_to_find
from podwire.scheduler.feasibility import Failure, NodeFilters, NoNodeFits, failure_on, first_failure, prepare
from podwire.scheduler.framework import ANYTHING, NOTHING, ClusterEvent, Filter, FilterAborted, Reasons
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.preemption import candidates
from podwire.scheduler.preemption.candidates import Candidate
from podwire.scheduler.profiles import DEFAULT, Profile
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
    preemption: Candidate | None = None
    """The pod fits on this node as soon as these pods are evicted."""
    clears_nomination: bool = False
    """The nominated node of the pod does not help any more."""


def choose(
    pod: PodInfo, snapshot: Snapshot, profile: Profile = DEFAULT, cache: DecisionCache | None = None
) -> Chosen | Unschedulable:
    """Without a cache, every node is filtered and scored."""
    nodes = snapshot.nodes
    if not nodes:
        return Unschedulable(NO_NODES, ClusterEvent.NODE)
    try:
        node_filters = prepare(pod, snapshot, profile.filters)
        if not snapshot.nominations:
            if cache is not None and (best := cache.best(pod, snapshot, profile, node_filters)):
                return Chosen(best)
            fitting, failed = _search(
                nodes, lambda node: first_failure(node, node_filters), cache, profile.percentage_of_nodes
            )
        elif nominated := _nominated_node(pod, snapshot, profile, node_filters):
            return Chosen(nominated.name)
        else:
            fitting, failed = _search(
                nodes,
                lambda node: failure_on(pod, snapshot, node, profile.filters, node_filters),
                cache,
                profile.percentage_of_nodes,
            )
    except NoNodeFits as error:
        retry_on, quiet = error.filter.retry_on, error.rejected.quiet
        return _unschedulable(pod, snapshot, profile, str(error), retry_on=retry_on, quiet=quiet)
    except FilterAborted as error:
        return _unschedulable(pod, snapshot, profile, str(error), retry_on=ANYTHING | ClusterEvent.DEVICES)
    if fitting:
        return Chosen(_best(pod, snapshot, fitting, profile).name)
    retry_on = NOTHING
    for filter_, _node, _reasons in failed:
        retry_on |= filter_.retry_on
    reasons = Counter(reason for _filter, _node, of_node in failed for reason in of_node)
    histogram = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return _unschedulable(pod, snapshot, profile, histogram, failed, retry_on=retry_on)


_Failed = tuple[Filter, NodeInfo, Reasons]


def _nominated_node(pod: PodInfo, snapshot: Snapshot, profile: Profile, node_filters: NodeFilters) -> NodeInfo | None:
    """Returns the node that is nominated for the pod if it fits there: it was made free for this pod."""
    name = snapshot.nominations.node_of(pod.pod.uid)
    node = snapshot.node_info(name) if name else None
    if node is None or node.node is None or failure_on(pod, snapshot, node, profile.filters, node_filters):
        return None
    return node


def _search(
    nodes: Sequence[NodeInfo],
    check_node: Callable[[NodeInfo], Failure | None],
    cache: DecisionCache | None,
    percentage: int,
) -> tuple[list[NodeInfo], list[_Failed]]:
    """Returns nodes that fit, and for each other one the filter that it failed with the reasons.

    With a cache, the search starts where the previous one has ended, and ends when enough nodes fit: all parts of the
    cluster get their turn.
    """
    fitting, failed = [], list[_Failed]()
    enough, start = (nodes_to_find(len(nodes), percentage), cache.next_start) if cache else (len(nodes), 0)
    start = start % len(nodes)
    checked = 0
    for node in itertools.chain(itertools.islice(nodes, start, None), itertools.islice(nodes, start)):
        checked += 1
        if failure := check_node(node):
            failed.append((failure[0], node, failure[1]))
        else:
            fitting.append(node)
            if len(fitting) >= enough:
                break
    if cache is not None and checked < len(nodes):
        cache.next_start = start + checked
    if not fitting and start:
        failed.sort(key=lambda failure: failure[1].name)
    return fitting, failed


def _unschedulable(
    pod: PodInfo,
    snapshot: Snapshot,
    profile: Profile,
    why: str,
    failed: Sequence[_Failed] = (),
    *,
    retry_on: ClusterEvent,
    quiet: bool = False,
) -> Unschedulable:
    """Tries preemption, and puts the sentences together."""
    sentences = [f"0/{len(snapshot.nodes)} nodes are available: {why}."]
    sentences += [
        filter_.explain(pod, snapshot, nodes)
        for filter_ in profile.filters
        if filter_.explain and (nodes := [node for by, node, _reasons in failed if by is filter_])
    ]
    preemption, clears_nomination = None, False
    if profile.preempts:
        rejections = {node.name: reasons for _filter, node, reasons in failed}
        result = candidates.find(pod, snapshot, rejections, profile.filters)
        if isinstance(result, Candidate):
            preemption = result
        else:
            sentences.append(f"preemption: {result.message}")
            clears_nomination = result.clears_nomination
    message = " ".join(sentence for sentence in sentences if sentence)
    return Unschedulable(message, retry_on, quiet, preemption, clears_nomination)


def _best(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo], profile: Profile) -> NodeInfo:
    """Returns the node with the highest score; ties go to fewer pods, then to the name."""
    if len(nodes) == 1:
        return nodes[0]
    totals = [0] * len(nodes)
    for score in profile.scores:
        for index, rating in enumerate(score.rate(pod, snapshot, nodes) or ()):
            totals[index] += score.weight * rating
    rated = zip(totals, nodes, strict=True)
    return min(rated, key=lambda pair: (-pair[0], len(pair[1].pods), pair[1].name))[1]
