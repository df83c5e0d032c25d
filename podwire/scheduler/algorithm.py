"""Which node a pod goes to, or why none will do. No I/O, no clock, no chance: the same question, the same answer."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podwire.scheduler.filters import FILTERS, POST_FILTERS
from podwire.scheduler.framework import ANYTHING, NOTHING, Filter, Happening, Hopeless, Judge, Refused
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
    helped_by: Happening
    """What has to happen before it is worth asking again."""
    quiet: bool = False
    """Nothing that people need to hear of."""


def choose(pod: PodInfo, snapshot: Snapshot) -> Chosen | Unschedulable:
    nodes = snapshot.nodes
    if not nodes:
        return Unschedulable(NO_NODES, Happening.NODE)
    judges: list[tuple[Filter, Judge]] = []
    for each in FILTERS:
        judge = each.prepare(pod, snapshot)
        if isinstance(judge, Refused):
            return Unschedulable(_told(pod, snapshot, judge.why), each.helped_by, quiet=judge.quiet)
        if judge is not None:
            judges.append((each, judge))
    try:
        fitting, failed = _sifted(nodes, judges)
    except Hopeless as error:
        return Unschedulable(_told(pod, snapshot, str(error)), ANYTHING | Happening.DEVICES)
    if fitting:
        return Chosen(_best(pod, snapshot, fitting).name)
    helped_by = NOTHING
    for each, _node, _reasons in failed:
        helped_by |= each.helped_by
    reasons = Counter(reason for _filter, _node, told in failed for reason in told)
    return Unschedulable(_told(pod, snapshot, _histogram(reasons), _details(pod, snapshot, failed)), helped_by)


_Failed = tuple[Filter, NodeInfo, Sequence[str]]


def _sifted(nodes: Iterable[NodeInfo], judges: Sequence[tuple[Filter, Judge]]) -> tuple[list[NodeInfo], list[_Failed]]:
    """The nodes that will do; for each other one the filter that it failed, and the reasons."""
    fitting, failed = [], []
    for node in nodes:
        for filter_, judge in judges:
            if reasons := judge(node):
                failed.append((filter_, node, reasons))
                break
        else:
            fitting.append(node)
    return fitting, failed


def _histogram(reasons: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


def _details(pod: PodInfo, snapshot: Snapshot, failed: Sequence[_Failed]) -> str:
    """What filters have to add to their reasons."""
    told = [
        each.tell(pod, snapshot, nodes)
        for each in FILTERS
        if each.tell is not None and (nodes := [node for filter_, node, _ in failed if filter_ is each])
    ]
    return " ".join(each for each in told if each)


def _told(pod: PodInfo, snapshot: Snapshot, why: str, details: str = "") -> str:
    afterwards = " ".join(each.tell(pod, snapshot) for each in POST_FILTERS)
    sentences = (f"0/{len(snapshot.nodes)} nodes are available: {why}.", details, afterwards)
    return " ".join(each for each in sentences if each)


def _best(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> NodeInfo:
    """The best rated; of equals the one with the fewest pods, then the first by name."""
    if len(nodes) == 1:
        return nodes[0]
    totals = [0] * len(nodes)
    for each in SCORES:
        for index, rating in enumerate(each.rate(pod, snapshot, nodes) or ()):
            totals[index] += each.weight * rating
    rated = zip(totals, nodes, strict=True)
    return min(rated, key=lambda pair: (-pair[0], len(pair[1].pods), pair[1].name))[1]
