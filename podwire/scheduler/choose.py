"""Which node a pod goes to, or why none will do. No I/O, no clock, no chance: the same question, the same answer."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podwire.scheduler.filter import NOTHING, Filter, Happening, Judge, Refused
from podwire.scheduler.filters import FILTERS, POST_FILTERS
from podwire.scheduler.podinfo import PodInfo
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


def choose(pod: PodInfo, snapshot: Snapshot) -> Chosen | Unschedulable:
    nodes = snapshot.nodes
    if not nodes:
        return Unschedulable(NO_NODES, Happening.NODE)
    judges: list[tuple[Filter, Judge]] = []
    for each in FILTERS:
        judge = each.prepare(pod, snapshot)
        if isinstance(judge, Refused):
            return Unschedulable(_told(pod, snapshot, judge.why), each.helped_by)
        if judge is not None:
            judges.append((each, judge))
    fitting, failed = _sifted(nodes, judges)
    if fitting:
        return Chosen(_best(pod, snapshot, fitting).name)
    reasons = Counter(reason for _filter, told in failed for reason in told)
    helped_by = NOTHING
    for filter_, _reasons in failed:
        helped_by |= filter_.helped_by
    return Unschedulable(_told(pod, snapshot, _histogram(reasons)), helped_by)


def _sifted(
    nodes: Iterable[NodeInfo], judges: Sequence[tuple[Filter, Judge]]
) -> tuple[list[NodeInfo], list[tuple[Filter, Sequence[str]]]]:
    """The nodes that will do; for each other one the filter that it failed, and the reasons."""
    fitting, failed = [], []
    for node in nodes:
        for filter_, judge in judges:
            if reasons := judge(node):
                failed.append((filter_, reasons))
                break
        else:
            fitting.append(node)
    return fitting, failed


def _histogram(reasons: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


def _told(pod: PodInfo, snapshot: Snapshot, why: str) -> str:
    afterwards = " ".join(each.tell(pod, snapshot) for each in POST_FILTERS)
    return f"0/{len(snapshot.nodes)} nodes are available: {why}. {afterwards}"


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
