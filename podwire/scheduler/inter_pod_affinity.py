"""InterPodAffinity: affinity and anti-affinity of the pod, and anti-affinity of existing pods towards it."""

from collections import Counter
from collections.abc import Mapping, Sequence

from podwire.scheduler.affinity_terms import Term
from podwire.scheduler.framework import NodeFilter, Unresolvable
from podwire.scheduler.pod_index import PodGroup, PodIndex
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

AFFINITY_NOT_MET = Unresolvable(("node(s) didn't match pod affinity rules",))
ANTI_AFFINITY_NOT_MET = ("node(s) didn't match pod anti-affinity rules",)
EXISTING_ANTI_AFFINITY = ("node(s) didn't satisfy existing pods anti-affinity rules",)

HARD_WEIGHT = 1
"""Weight of an existing pod's required affinity for the incoming pod."""

Domains = Sequence[tuple[str, Mapping[str, int]]]
"""Topology keys, with the pods that matter by the key's value."""


def node_filter(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | None:
    index, own = snapshot.pod_index, pod.terms
    forbidden_domains = _existing_anti_affinity(pod, snapshot, index)
    if not forbidden_domains and not own.affinity and not own.anti_affinity:
        return None
    affinity_domains = [
        (term.topology_key, group.domains(term.topology_key))
        for group in _groups_matching(own.affinity, snapshot, index)
        for term in own.affinity
    ]
    first = not any(domains for _key, domains in affinity_domains) and all(
        affinity_term.matches(pod.pod.metadata, snapshot.namespaces) for affinity_term in own.affinity
    )
    anti_affinity_domains = [
        (term.topology_key, group.domains(term.topology_key))
        for term in own.anti_affinity
        for group in _groups_matching((term,), snapshot, index)
    ]

    def check_node(node: NodeInfo) -> Sequence[str]:
        if not _satisfied(own.affinity, node, affinity_domains, first=first):
            return AFFINITY_NOT_MET
        if _in_domain(node, anti_affinity_domains):
            return ANTI_AFFINITY_NOT_MET
        return EXISTING_ANTI_AFFINITY if _in_domain(node, forbidden_domains) else ()

    return check_node


def _existing_anti_affinity(pod: PodInfo, snapshot: Snapshot, index: PodIndex) -> Domains:
    return [
        (term.topology_key, domains)
        for terms, group in index.by_terms.items()
        for term in terms.anti_affinity
        if term.matches(pod.pod.metadata, snapshot.namespaces) and (domains := group.domains(term.topology_key))
    ]


def _groups_matching(terms: Sequence[Term], snapshot: Snapshot, index: PodIndex) -> list[PodGroup]:
    """Returns the groups of pods that match all terms at once."""
    if not terms:
        return []
    first, *others = terms
    return [
        group
        for group in index.matching(first.selector)
        if first.selects_namespace(group.sample.pod.namespace, snapshot.namespaces)
        and all(term.matches(group.sample.pod.metadata, snapshot.namespaces) for term in others)
    ]


def _satisfied(terms: Sequence[Term], node: NodeInfo, affinity_domains: Domains, *, first: bool) -> bool:
    """Returns whether the node is in a matching domain for every term; the first pod of a group may start anywhere."""
    for term in terms:
        value = node.labels.get(term.topology_key)
        if value is None:
            return False
        if not first and not any(key == term.topology_key and value in domains for key, domains in affinity_domains):
            return False
    return True


def _in_domain(node: NodeInfo, places: Domains) -> bool:
    labels = node.labels
    return any(labels.get(key) in domains for key, domains in places)


def score(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Scores the pod's preferred terms, and those of existing pods about it."""
    index, scores = snapshot.pod_index, Counter[tuple[str, str]]()
    for term in pod.terms.preferred:
        for group in _groups_matching((term,), snapshot, index):
            _add_score(scores, group, term, term.weight)
    for terms, group in index.by_terms.items():
        for term, weight in (
            *((preferred, preferred.weight) for preferred in terms.preferred),
            *((required, HARD_WEIGHT) for required in terms.affinity),
        ):
            if term.matches(pod.pod.metadata, snapshot.namespaces):
                _add_score(scores, group, term, weight)
    if not scores:
        return None
    keys = {key for key, _value in scores}
    sums = [sum(scores[key, node.labels[key]] for key in keys if key in node.labels) for node in nodes]
    least, most = min(sums), max(sums)
    return [100 * (total - least) // (most - least) if most > least else 0 for total in sums]


def prefers_domains(pod: PodInfo, snapshot: Snapshot) -> bool:
    """Whether preferred terms of the pod, or terms of others about it, may make nodes differ."""
    return bool(pod.terms.preferred) or any(
        term.matches(pod.pod.metadata, snapshot.namespaces)
        for terms in snapshot.pod_index.by_terms
        for term in (*terms.preferred, *terms.affinity)
    )


def _add_score(scores: Counter[tuple[str, str]], group: PodGroup, term: Term, weight: int) -> None:
    for value, count in group.domains(term.topology_key).items():
        scores[term.topology_key, value] += weight * count
