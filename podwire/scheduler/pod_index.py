"""Counts of pods with the same namespace and labels, by node and by topology domain.

A term of affinity, anti-affinity or spread selects pods by labels. Most pods of a workload have the same labels, so
that a decision looks at each set of labels once instead of at each pod, and finds the domains counted already.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from podwire.objects.selectors import LabelSelector
from podwire.scheduler.affinity_terms import Terms
from podwire.scheduler.pod_info import PodInfo

if TYPE_CHECKING:
    from podwire.scheduler.snapshot import NodeInfo

MAX_SELECTORS = 64
"""Selectors whose matching groups are remembered."""

Infos = Mapping[str, "NodeInfo"]
Key = tuple[str, frozenset[tuple[str, str]], bool]
"""Namespace, labels, and whether the pods are being deleted."""


class PodGroup:
    """Pods that no selector tells apart, or pods with the same terms: `sample` is one of them."""

    __slots__ = ("_domains", "_infos", "nodes", "sample")

    def __init__(self, sample: PodInfo, infos: "Infos") -> None:
        self.sample = sample
        self.nodes: Counter[str] = Counter()
        """The number of pods by the name of the node."""
        self._infos = infos
        self._domains: dict[str, Counter[str]] = {}

    def add(self, node: str, count: int) -> None:
        _add(self.nodes, node, count)
        for key, domains in self._domains.items():
            if (value := self._infos[node].labels.get(key)) is not None:
                _add(domains, value, count)

    def domains(self, key: str) -> Mapping[str, int]:
        """Returns the number of pods by the values of a node label; none of them is 0."""
        counts = self._domains.get(key)
        if counts is None:
            counts = self._domains[key] = Counter()
            for node, count in self.nodes.items():
                if (value := self._infos[node].labels.get(key)) is not None:
                    counts[value] += count
        return counts

    def forget_domains(self) -> None:
        self._domains.clear()

    def copy(self) -> "PodGroup":
        other = PodGroup(self.sample, self._infos)
        other.nodes = self.nodes.copy()
        return other


class PodIndex:
    """Updated as pods come and go; `replaced` returns another one for a node that has other pods."""

    def __init__(self, infos: Infos) -> None:
        """`infos` has every node that pods are on, by name."""
        self._infos = infos
        self._by_labels: dict[Key, PodGroup] = {}
        self.by_terms: dict[Terms, PodGroup] = {}
        """Pods with affinity or anti-affinity terms."""
        self._matching: OrderedDict[LabelSelector, dict[Key, PodGroup]] = OrderedDict()

    def add(self, info: PodInfo, node: str) -> None:
        key = _key(info)
        group = self._by_labels.get(key)
        if group is None:
            group = self._by_labels[key] = PodGroup(info, self._infos)
            for selector, matching in self._matching.items():
                if selector.matches(info.pod.metadata.labels):
                    matching[key] = group
        group.add(node, 1)
        if info.has_terms:
            with_terms = self.by_terms.get(info.terms)
            if with_terms is None:
                with_terms = self.by_terms[info.terms] = PodGroup(info, self._infos)
            with_terms.add(node, 1)

    def remove(self, info: PodInfo, node: str) -> None:
        key = _key(info)
        group = self._by_labels[key]
        group.add(node, -1)
        if not group.nodes:
            del self._by_labels[key]
            for matching in self._matching.values():
                matching.pop(key, None)
        if info.has_terms:
            with_terms = self.by_terms[info.terms]
            with_terms.add(node, -1)
            if not with_terms.nodes:
                del self.by_terms[info.terms]

    def matching(self, selector: LabelSelector) -> Iterable[PodGroup]:
        """Returns the groups of all namespaces whose labels match."""
        matching = self._matching.get(selector)
        if matching is None:
            matching = self._matching[selector] = {
                key: group
                for key, group in self._by_labels.items()
                if selector.matches(group.sample.pod.metadata.labels)
            }
            if len(self._matching) > MAX_SELECTORS:
                self._matching.popitem(last=False)
        else:
            self._matching.move_to_end(selector)
        return matching.values()

    def labels_changed(self) -> None:
        """The labels of a node with pods have changed."""
        for group in (*self._by_labels.values(), *self.by_terms.values()):
            group.forget_domains()

    def replaced(self, old: "NodeInfo", new: "NodeInfo") -> "PodIndex":
        """Returns an index in which one node has other pods. It is not updated with this one."""
        gone = [info for uid, info in old.pods.items() if new.pods.get(uid) is not info]
        came = [info for uid, info in new.pods.items() if old.pods.get(uid) is not info]
        if not gone and not came:
            return self
        other = PodIndex(self._infos)
        by_labels, by_terms = self._by_labels.copy(), self.by_terms.copy()
        for key in {_key(info) for info in (*gone, *came)} & by_labels.keys():
            by_labels[key] = by_labels[key].copy()
        for terms in {info.terms for info in (*gone, *came)} & by_terms.keys():
            by_terms[terms] = by_terms[terms].copy()
        other._by_labels, other.by_terms = by_labels, by_terms
        for info in gone:
            other.remove(info, old.name)
        for info in came:
            other.add(info, old.name)
        return other


def _key(info: PodInfo) -> Key:
    metadata = info.pod.metadata
    return info.pod.namespace, frozenset(metadata.labels.items()), info.pod.deleting


def _add(counts: Counter[str], key: str, count: int) -> None:
    total = counts[key] + count
    if total:
        counts[key] = total
    else:
        del counts[key]
