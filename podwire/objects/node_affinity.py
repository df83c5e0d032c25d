"""Node selection of a pod: nodeSelector and affinity.nodeAffinity. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from podwire.objects.nodes import Node
from podwire.objects.pods import PodSpec
from podwire.objects.selectors import Requirement

Wanted = Callable[[Node], bool]

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": ">", "Lt": "<"}


def required(spec: PodSpec) -> Wanted | None:
    """A test that a node must pass; None when any node will do."""
    affinity = (spec.affinity or {}).get("nodeAffinity") or {}
    selector = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not spec.node_selector and selector is None:
        return None
    labels = spec.node_selector.items()
    terms = None if selector is None else [_term(term) for term in selector.get("nodeSelectorTerms") or ()]

    def wanted(node: Node) -> bool:
        if not labels <= node.metadata.labels.items():
            return False
        return terms is None or any(term(node) for term in terms)

    return wanted


def wants(spec: PodSpec, node: Node) -> bool:
    """Returns whether one node matches."""
    wanted = required(spec)
    return wanted is None or wanted(node)


def preferred(spec: PodSpec) -> Sequence[tuple[int, Wanted]]:
    """Tests with the weight that a node gains by passing."""
    affinity = (spec.affinity or {}).get("nodeAffinity") or {}
    given = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return [(preference.get("weight", 0), _term(preference.get("preference") or {})) for preference in given]


def selected(selector: Mapping[str, Any]) -> Wanted:
    """The test of a NodeSelector: one of its terms is met."""
    terms = [_term(term) for term in selector.get("nodeSelectorTerms") or ()]
    return lambda node: any(term(node) for term in terms)


def _term(term: Mapping[str, Any]) -> Wanted:
    """All of its conditions together; a term without any is met by no node."""
    labels = _requirements(term.get("matchExpressions") or ())
    fields = _requirements(term.get("matchFields") or ())
    if not labels and not fields:
        return lambda _node: False

    def met(node: Node) -> bool:
        own = {"metadata.name": node.name}
        return all(label.matches(node.metadata.labels) for label in labels) and all(
            field.matches(own) for field in fields
        )

    return met


def _requirements(given: Iterable[Mapping[str, Any]]) -> list[Requirement]:
    return [
        Requirement(
            requirement.get("key", ""),
            _OPERATORS[requirement.get("operator", "")],
            frozenset(requirement.get("values") or ()),
        )
        for requirement in given
    ]
