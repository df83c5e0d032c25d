"""PodTopologySpread: limits the skew of matching pods between topology domains (zones, hosts, any node label)."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from podwire.objects import node_affinity, taints
from podwire.objects.node_affinity import Wanted
from podwire.objects.pods import SpreadConstraint
from podwire.objects.selectors import LabelSelector
from podwire.scheduler import affinity_terms
from podwire.scheduler.framework import NodeFilter, Unresolvable
from podwire.scheduler.pod_index import PodGroup
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

SPREAD_VIOLATED = ("node(s) didn't match pod topology spread constraints",)
NO_LABEL = Unresolvable(("node(s) didn't match pod topology spread constraints (missing required label)",))

HOSTNAME = "kubernetes.io/hostname"

DEFAULT_SKEW = 5
"""Default maxSkew for pods of one owner without constraints of their own."""


@dataclass(frozen=True, slots=True)
class _Constraint:
    given: SpreadConstraint
    selector: LabelSelector

    def domains(self, pod: PodInfo, snapshot: Snapshot, keys: frozenset[str], wanted: Wanted | None) -> Counter[str]:
        """Counts matching pods per domain, zeros included; nodes that can never run the pod are left out.

        Only nodes with every label of `keys` count in a domain."""
        key = self.given.topology_key
        groups = self.groups(pod, snapshot)
        if (wanted is None or self.given.node_affinity_policy == "Ignore") and self.given.node_taints_policy != "Honor":
            values = snapshot.label_counts(keys)[key]
            if len(keys) == 1 or values == snapshot.label_counts(frozenset((key,)))[key]:
                counts = Counter(dict.fromkeys(values, 0))
                for group in groups:
                    counts.update(group.domains(key))
                return counts
        counts = Counter()
        for node in snapshot.nodes:
            if keys <= node.labels.keys() and self._eligible(pod, node, wanted):
                counts[node.labels[key]] += sum(group.nodes[node.name] for group in groups)
        return counts

    def groups(self, pod: PodInfo, snapshot: Snapshot) -> list[PodGroup]:
        """Returns the groups of pods that count."""
        namespace = pod.pod.namespace
        return [
            group
            for group in snapshot.pod_index.matching(self.selector)
            if group.sample.pod.namespace == namespace and not group.sample.pod.deleting
        ]

    def _eligible(self, pod: PodInfo, node: NodeInfo, wanted: Wanted | None) -> bool:
        if node.node is None:
            return False
        if self.given.node_affinity_policy != "Ignore" and wanted is not None and not wanted(node.node):
            return False
        if self.given.node_taints_policy != "Honor":
            return True
        return not any(taints.untolerated(node.node.spec.taints, pod.pod.spec.tolerations))


def _constraints(pod: PodInfo, when: str) -> list[_Constraint]:
    labels = pod.pod.metadata.labels
    return [
        _Constraint(constraint, affinity_terms.narrowed(constraint.label_selector, labels, constraint.match_label_keys))
        for constraint in pod.pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == when
    ]


def _keys(constraints: Sequence[_Constraint]) -> frozenset[str]:
    return frozenset(constraint.given.topology_key for constraint in constraints)


def _labelled(nodes: Sequence[NodeInfo], constraints: Sequence[_Constraint]) -> list[NodeInfo]:
    """Returns the nodes that have every topology label; others count in no domain."""
    keys = _keys(constraints)
    return [node for node in nodes if keys <= node.labels.keys()]


def node_filter(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | None:
    constraints = _constraints(pod, "DoNotSchedule")
    if not constraints:
        return None
    wanted = node_affinity.required(pod.pod.spec)
    keys = _keys(constraints)
    limits = [_limit(pod, constraint, constraint.domains(pod, snapshot, keys, wanted)) for constraint in constraints]

    def check_node(node: NodeInfo) -> Sequence[str]:
        for key, counts, most in limits:
            if key not in node.labels:
                return NO_LABEL
            if counts[node.labels[key]] > most:
                return SPREAD_VIOLATED
        return ()

    return check_node


def _limit(pod: PodInfo, constraint: _Constraint, counts: Counter[str]) -> tuple[str, Counter[str], float]:
    """Returns the maximum of matching pods in a domain that the pod may still join."""
    least: float = min(counts.values(), default=math.inf)
    if len(counts) < (constraint.given.min_domains or 1):
        least = 0
    itself = 1 if constraint.selector.matches(pod.pod.metadata.labels) else 0
    return constraint.given.topology_key, counts, least + constraint.given.max_skew - itself


def prefers_domains(pod: PodInfo) -> bool:
    """Whether soft constraints of the pod make nodes differ."""
    return any(
        constraint.when_unsatisfiable == "ScheduleAnyway" for constraint in pod.pod.spec.topology_spread_constraints
    )


def score(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Prefers domains with fewer matching pods, by the pod's soft constraints."""
    constraints = _constraints(pod, "ScheduleAnyway")
    if not constraints:
        return None
    scored = _labelled(nodes, constraints)
    pod_counts = dict.fromkeys((node.name for node in scored), 0.0)
    for name, pod_count in _pod_counts(pod, snapshot, scored, constraints):
        pod_counts[name] += pod_count
    return _normalize([round(pod_counts[node.name]) if node.name in pod_counts else None for node in nodes])


def _pod_counts(
    pod: PodInfo, snapshot: Snapshot, scored: Sequence[NodeInfo], constraints: Sequence[_Constraint]
) -> Iterator[tuple[str, float]]:
    wanted = node_affinity.required(pod.pod.spec)
    keys = _keys(constraints)
    for constraint in constraints:
        key = constraint.given.topology_key
        groups = constraint.groups(pod, snapshot)
        counts = Counter[str]() if key == HOSTNAME else constraint.domains(pod, snapshot, keys, wanted)
        weight = _weight(len({node.labels[key] for node in scored}))
        for node in scored:
            here = sum(group.nodes[node.name] for group in groups) if key == HOSTNAME else counts[node.labels[key]]
            yield node.name, here * weight + constraint.given.max_skew - 1


def normalize_owned(owned: Sequence[int], nodes: int) -> Sequence[int]:
    """Rates nodes by how many pods of one owner they have."""
    weight = _weight(nodes)
    return _normalize([round(count * weight + DEFAULT_SKEW - 1) for count in owned])


def _weight(domains: int) -> float:
    """Weighs domains so that many small ones do not outweigh few large ones."""
    return math.log(domains + 2)


def _normalize(pod_counts: Sequence[int | None]) -> list[int]:
    """Normalizes to 0..100, the emptiest best; nodes outside of the topology get 0."""
    known = [count for count in pod_counts if count is not None]
    most, least = max(known, default=0), min(known, default=0)
    if not most:
        return [0 if count is None else 100 for count in pod_counts]
    return [0 if count is None else 100 * (most + least - count) // most for count in pod_counts]
