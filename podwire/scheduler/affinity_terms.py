"""Affinity terms: the pods that an affinity, anti-affinity or spread constraint selects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.objects import selectors
from podwire.objects.pods import Metadata, Pod
from podwire.objects.selectors import LabelSelector, Requirement

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has, also one that no watch has delivered yet."""

Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of namespaces, by name."""


@dataclass(frozen=True, slots=True)
class Term:
    """Selects pods by namespace and labels; `topology_key` is the node label that defines "near"."""

    topology_key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    weight: int = 0

    def matches(self, pod: Metadata, namespaces: Namespaces) -> bool:
        return self.selector.matches(pod.labels) and self.selects_namespace(pod.namespace, namespaces)

    def selects_namespace(self, namespace: str, namespaces: Namespaces) -> bool:
        if namespace in self.namespaces:
            return True
        if self.namespace_selector is None:
            return False
        return self.namespace_selector.matches(namespaces.get(namespace) or {NAMESPACE_NAME: namespace})


@dataclass(frozen=True, slots=True)
class Terms:
    """The affinity and anti-affinity terms of a pod."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()
    """With the weight by which a node near such a pod is better; negative when it is worse."""


NONE = Terms()


def read(pod: Pod) -> Terms:
    """Parses the terms of a pod; raises ValueError for an invalid selector."""
    given = pod.spec.affinity or {}
    near, apart = given.get("podAffinity") or {}, given.get("podAntiAffinity") or {}
    if not near and not apart:
        return NONE
    return Terms(
        affinity=tuple(_term(pod, term) for term in near.get(_REQUIRED) or ()),
        anti_affinity=tuple(_term(pod, term) for term in apart.get(_REQUIRED) or ()),
        preferred=(*_weighted(pod, near, 1), *_weighted(pod, apart, -1)),
    )


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _weighted(pod: Pod, side: Mapping[str, Any], sign: int) -> Iterable[Term]:
    for weighted in side.get(_PREFERRED) or ():
        yield _term(pod, weighted.get("podAffinityTerm") or {}, weight=sign * weighted.get("weight", 0))


def _term(pod: Pod, given: Mapping[str, Any], *, weight: int = 0) -> Term:
    namespaces, selector = given.get("namespaces") or (), given.get("namespaceSelector")
    return Term(
        topology_key=given.get("topologyKey", ""),
        selector=narrowed(
            given.get("labelSelector"),
            pod.metadata.labels,
            given.get("matchLabelKeys") or (),
            given.get("mismatchLabelKeys") or (),
        ),
        namespaces=frozenset(namespaces or (() if selector is not None else (pod.namespace,))),
        namespace_selector=None if selector is None else selectors.from_object(selector),
        weight=weight,
    )


def narrowed(
    selector: Mapping[str, Any] | None,
    labels: Mapping[str, str],
    match: Iterable[str],
    mismatch: Iterable[str] = (),
) -> LabelSelector:
    """A selector, narrowed to pods that have the pod's own values of some labels, and others of others."""
    read_ = selectors.from_object(selector)
    more = [
        *(Requirement(key, "in", frozenset((labels[key],))) for key in match if key in labels),
        *(Requirement(key, "notin", frozenset((labels[key],))) for key in mismatch if key in labels),
    ]
    return LabelSelector((*read_.requirements, *more), read_.nothing) if more else read_
