"""InterPodAffinity: affinity and anti-affinity of the pod, and anti-affinity of existing pods towards it."""

from collections import Counter
from collections.abc import Sequence

from podwire.scheduler.affinity_terms import Term
from podwire.scheduler.framework import NodeFilter, Unresolvable
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

AFFINITY_NOT_MET = Unresolvable(("node(s) didn't match pod affinity rules",))
ANTI_AFFINITY_NOT_MET = ("node(s) didn't match pod anti-affinity rules",)
EXISTING_ANTI_AFFINITY = ("node(s) didn't satisfy existing pods anti-affinity rules",)

HARD_WEIGHT = 1
"""Weight of an existing pod's required affinity for the incoming pod."""

Domains = set[tuple[str, str]]
"""Topology domains: pairs of a topology key and its value."""


def node_filter(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | None:
    forbidden_domains = _existing_anti_affinity(pod, snapshot)
    own = pod.terms
    if not forbidden_domains and not own.affinity and not own.anti_affinity:
        return None
    affinity_domains = {
        (term.topology_key, node.labels[term.topology_key])
        for node in _nodes_with_matching_pods(snapshot, own.affinity)
        for term in own.affinity
        if term.topology_key in node.labels
    }
    first = not affinity_domains and all(
        affinity_term.matches(pod.pod.metadata, snapshot.namespaces) for affinity_term in own.affinity
    )
    anti_affinity_domains = {
        (term.topology_key, node.labels[term.topology_key])
        for term in own.anti_affinity
        for node in snapshot.nodes
        if term.topology_key in node.labels
        and any(term.matches(existing.pod.metadata, snapshot.namespaces) for existing in node.pods.values())
    }

    def check_node(node: NodeInfo) -> Sequence[str]:
        if not _satisfied(own.affinity, node, affinity_domains, first=first):
            return AFFINITY_NOT_MET
        if _in_domain(node, anti_affinity_domains):
            return ANTI_AFFINITY_NOT_MET
        return EXISTING_ANTI_AFFINITY if _in_domain(node, forbidden_domains) else ()

    return check_node


def _existing_anti_affinity(pod: PodInfo, snapshot: Snapshot) -> Domains:
    return {
        (term.topology_key, node.labels[term.topology_key])
        for node in snapshot.nodes
        for existing in node.with_affinity.values()
        for term in existing.terms.anti_affinity
        if term.topology_key in node.labels and term.matches(pod.pod.metadata, snapshot.namespaces)
    }


def _nodes_with_matching_pods(snapshot: Snapshot, terms: Sequence[Term]) -> list[NodeInfo]:
    """Returns the nodes with a pod that matches all terms at once."""
    if not terms:
        return []
    return [
        node
        for node in snapshot.nodes
        if any(all(term.matches(pod.pod.metadata, snapshot.namespaces) for term in terms) for pod in node.pods.values())
    ]


def _satisfied(terms: Sequence[Term], node: NodeInfo, affinity_domains: Domains, *, first: bool) -> bool:
    """Returns whether the node is in a matching domain for every term; the first pod of a group may start anywhere."""
    for term in terms:
        value = node.labels.get(term.topology_key)
        if value is None or (not first and (term.topology_key, value) not in affinity_domains):
            return False
    return True


def _in_domain(node: NodeInfo, places: Domains) -> bool:
    return any(node.labels.get(key) == value for key, value in places)


def score(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Scores the pod's preferred terms, and those of existing pods about it."""
    scores: Counter[tuple[str, str]] = Counter()
    for node in snapshot.nodes:
        for existing in node.pods.values() if pod.terms.preferred else node.with_affinity.values():
            for term in pod.terms.preferred:
                if term.matches(existing.pod.metadata, snapshot.namespaces):
                    _add_score(scores, node, term, term.weight)
            for term in existing.terms.preferred:
                if term.matches(pod.pod.metadata, snapshot.namespaces):
                    _add_score(scores, node, term, term.weight)
            for term in existing.terms.affinity:
                if term.matches(pod.pod.metadata, snapshot.namespaces):
                    _add_score(scores, node, term, HARD_WEIGHT)
    if not scores:
        return None
    sums = [sum(scores[key, value] for key, value in node.labels.items() if (key, value) in scores) for node in nodes]
    least, most = min(sums), max(sums)
    return [100 * (total - least) // (most - least) if most > least else 0 for total in sums]


def _add_score(scores: Counter[tuple[str, str]], node: NodeInfo, term: Term, weight: int) -> None:
    if term.topology_key in node.labels:
        scores[term.topology_key, node.labels[term.topology_key]] += weight
