"""InterPodAffinity: near pods of one kind, away from those of another; and what pods already there say to that."""

from collections import Counter
from collections.abc import Iterable, Sequence

from podwire.scheduler.affinity_terms import Term
from podwire.scheduler.framework import Judge, Refused
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

FAR = ("node(s) didn't match pod affinity rules",)
NEAR = ("node(s) didn't match pod anti-affinity rules",)
UNWELCOME = ("node(s) didn't satisfy existing pods anti-affinity rules",)

HARD_WEIGHT = 1
"""What the required affinity of a pod that is there already counts for a newcomer that it would like."""

Places = set[tuple[str, str]]
"""Pairs of a topology key and a value."""


def judge(pod: PodInfo, snapshot: Snapshot) -> Judge | Refused | None:
    if why := _unknowable(pod):
        return Refused(why)
    unwelcome = _unwelcome(pod, snapshot)
    own = pod.terms
    if not unwelcome and not own.affinity and not own.anti_affinity:
        return None
    friends = _places(_alike(snapshot, own.affinity), own.affinity)
    first = not friends and all(each.matches(pod.pod.metadata) for each in own.affinity)
    foes = {
        (term.topology_key, node.labels[term.topology_key])
        for term in own.anti_affinity
        for node in snapshot.nodes
        if term.topology_key in node.labels and any(term.matches(each.pod.metadata) for each in node.pods.values())
    }

    def judged(node: NodeInfo) -> Sequence[str]:
        if not _satisfied(own.affinity, node, friends, first=first):
            return FAR
        if _touches(node, foes):
            return NEAR
        return UNWELCOME if _touches(node, unwelcome) else ()

    return judged


def _unknowable(pod: PodInfo) -> str:
    for name, terms in (("podAffinity", pod.terms.affinity), ("podAntiAffinity", pod.terms.anti_affinity)):
        for index, each in enumerate(terms):
            if not each.knowable:
                rule = f"spec.affinity.{name}.requiredDuringSchedulingIgnoredDuringExecution[{index}]"
                return f"{rule}.namespaceSelector by other labels than a namespace's name is not evaluated"
    return ""


def _unwelcome(pod: PodInfo, snapshot: Snapshot) -> Places:
    return {
        (term.topology_key, node.labels[term.topology_key])
        for node in snapshot.nodes
        for there in node.partial.values()
        for term in there.terms.anti_affinity
        if term.topology_key in node.labels and term.matches(pod.pod.metadata)
    }


def _alike(snapshot: Snapshot, terms: Sequence[Term]) -> list[NodeInfo]:
    """Nodes with a pod that meets all terms at once."""
    if not terms:
        return []
    return [
        node
        for node in snapshot.nodes
        if any(all(term.matches(each.pod.metadata) for term in terms) for each in node.pods.values())
    ]


def _places(nodes: Iterable[NodeInfo], terms: Iterable[Term]) -> Places:
    keys = {each.topology_key for each in terms}
    return {(key, node.labels[key]) for node in nodes for key in keys if key in node.labels}


def _satisfied(terms: Sequence[Term], node: NodeInfo, friends: Places, *, first: bool) -> bool:
    """Near to them in every term; the first of a group that wants to be together may begin anywhere."""
    for each in terms:
        value = node.labels.get(each.topology_key)
        if value is None or (not first and (each.topology_key, value) not in friends):
            return False
    return True


def _touches(node: NodeInfo, places: Places) -> bool:
    return any(node.labels.get(key) == value for key, value in places)


def score(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """The wishes of the pod, and those of pods that are there about it."""
    gains: Counter[tuple[str, str]] = Counter()
    for node in snapshot.nodes:
        for there in node.pods.values() if pod.terms.preferred else node.partial.values():
            for term in pod.terms.preferred:
                if term.matches(there.pod.metadata):
                    _gain(gains, node, term, term.weight)
            _wished(gains, node, there, pod)
    if not gains:
        return None
    sums = [sum(gains[key, value] for key, value in each.labels.items() if (key, value) in gains) for each in nodes]
    least, most = min(sums), max(sums)
    return [100 * (each - least) // (most - least) if most > least else 0 for each in sums]


def _wished(gains: Counter[tuple[str, str]], node: NodeInfo, there: PodInfo, pod: PodInfo) -> None:
    for term in there.terms.preferred:
        if term.knowable and term.matches(pod.pod.metadata):
            _gain(gains, node, term, term.weight)
    for term in there.terms.affinity:
        if term.knowable and term.matches(pod.pod.metadata):
            _gain(gains, node, term, HARD_WEIGHT)


def _gain(gains: Counter[tuple[str, str]], node: NodeInfo, term: Term, weight: int) -> None:
    if term.topology_key in node.labels:
        gains[term.topology_key, node.labels[term.topology_key]] += weight
