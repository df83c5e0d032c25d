"""PodTopologySpread: pods of a kind in equal numbers in every zone, on every host, or whatever a node label tells."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from podwire.objects import node_affinity, taints
from podwire.objects.node_affinity import Wanted
from podwire.objects.pods import SpreadConstraint
from podwire.objects.selectors import LabelSelector
from podwire.scheduler import affinity_terms
from podwire.scheduler.framework import Judge
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

UNEVEN = ("node(s) didn't match pod topology spread constraints",)
NO_LABEL = ("node(s) didn't match pod topology spread constraints (missing required label)",)

HOSTNAME = "kubernetes.io/hostname"

OWN_SKEW = 5
"""How many pods of one owner may be more on a node before that counts, when the pod itself says nothing."""


@dataclass(frozen=True, slots=True)
class _Rule:
    given: SpreadConstraint
    selector: LabelSelector

    def domains(self, pod: PodInfo, nodes: Sequence[NodeInfo], wanted: Wanted | None) -> Counter[str]:
        """Matching pods by topology value, zeros among them; nodes that could never take the pod left out."""
        counts: Counter[str] = Counter()
        for each in nodes:
            if self._eligible(pod, each, wanted):
                counts[each.labels[self.given.topology_key]] += self.count(pod, each)
        return counts

    def count(self, pod: PodInfo, node: NodeInfo) -> int:
        namespace = pod.pod.namespace
        return sum(
            1
            for each in node.pods.values()
            if each.pod.namespace == namespace
            and not each.pod.deleting
            and self.selector.matches(each.pod.metadata.labels)
        )

    def _eligible(self, pod: PodInfo, node: NodeInfo, wanted: Wanted | None) -> bool:
        if node.node is None:
            return False
        if self.given.node_affinity_policy != "Ignore" and wanted is not None and not wanted(node.node):
            return False
        if self.given.node_taints_policy != "Honor":
            return True
        return not any(taints.untolerated(node.node.spec.taints, pod.pod.spec.tolerations))


def _rules(pod: PodInfo, when: str) -> list[_Rule]:
    labels = pod.pod.metadata.labels
    return [
        _Rule(each, affinity_terms.narrowed(each.label_selector, labels, each.match_label_keys))
        for each in pod.pod.spec.topology_spread_constraints
        if each.when_unsatisfiable == when
    ]


def _labelled(nodes: Sequence[NodeInfo], rules: Sequence[_Rule]) -> list[NodeInfo]:
    """Nodes that have a place in every topology; the others count in none."""
    keys = {each.given.topology_key for each in rules}
    return [each for each in nodes if keys <= each.labels.keys()]


def judge(pod: PodInfo, snapshot: Snapshot) -> Judge | None:
    rules = _rules(pod, "DoNotSchedule")
    if not rules:
        return None
    wanted = node_affinity.required(pod.pod.spec)
    counted = _labelled(snapshot.nodes, rules)
    limits = [_limit(pod, each, each.domains(pod, counted, wanted)) for each in rules]

    def judged(node: NodeInfo) -> Sequence[str]:
        for key, counts, most in limits:
            if key not in node.labels:
                return NO_LABEL
            if counts[node.labels[key]] > most:
                return UNEVEN
        return ()

    return judged


def _limit(pod: PodInfo, rule: _Rule, counts: Counter[str]) -> tuple[str, Counter[str], float]:
    """The most matching pods that a domain may have for this one to join them."""
    least: float = min(counts.values(), default=math.inf)
    if len(counts) < (rule.given.min_domains or 1):
        least = 0
    itself = 1 if rule.selector.matches(pod.pod.metadata.labels) else 0
    return rule.given.topology_key, counts, least + rule.given.max_skew - itself


def score(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Better where fewer of its kind are: by the pod's own soft constraints, else by host for pods of one owner."""
    if not pod.pod.spec.topology_spread_constraints:
        return _by_owner(pod, nodes) if pod.owner else None
    rules = _rules(pod, "ScheduleAnyway")
    if not rules:
        return None
    scored = _labelled(nodes, rules)
    crowds = dict.fromkeys((each.name for each in scored), 0.0)
    for name, crowd in _crowds(pod, snapshot, scored, rules):
        crowds[name] += crowd
    return _normalised([round(crowds[each.name]) if each.name in crowds else None for each in nodes])


def _crowds(
    pod: PodInfo, snapshot: Snapshot, scored: Sequence[NodeInfo], rules: Sequence[_Rule]
) -> Iterator[tuple[str, float]]:
    wanted = node_affinity.required(pod.pod.spec)
    counted = _labelled(snapshot.nodes, rules)
    for rule in rules:
        key = rule.given.topology_key
        counts = rule.domains(pod, counted, wanted)
        weight = _weight(len({each.labels[key] for each in scored}))
        for each in scored:
            here = rule.count(pod, each) if key == HOSTNAME else counts[each.labels[key]]
            yield each.name, here * weight + rule.given.max_skew - 1


def _by_owner(pod: PodInfo, nodes: Sequence[NodeInfo]) -> Sequence[int]:
    weight = _weight(len(nodes))
    return _normalised([round(each.owners[pod.owner] * weight + OWN_SKEW - 1) for each in nodes])


def _weight(domains: int) -> float:
    """So that few large domains are not drowned by many small ones."""
    return math.log(domains + 2)


def _normalised(crowds: Sequence[int | None]) -> list[int]:
    """0 to 100, the emptiest best; nodes outside of the topology 0."""
    known = [each for each in crowds if each is not None]
    most, least = max(known, default=0), min(known, default=0)
    if not most:
        return [0 if each is None else 100 for each in crowds]
    return [0 if each is None else 100 * (most + least - each) // most for each in crowds]
