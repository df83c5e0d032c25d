"""Whether a node is one that a pod asks for: nodeSelector and the required terms of nodeAffinity. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from podwire.objects.nodes import Node
from podwire.objects.pods import PodSpec
from podwire.objects.selectors import Requirement

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": ">", "Lt": "<"}


def wants(spec: PodSpec, node: Node) -> bool:
    """All labels of the selector, and one of the terms."""
    if not spec.node_selector.items() <= node.metadata.labels.items():
        return False
    affinity = (spec.affinity or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_met(each, node) for each in required.get("nodeSelectorTerms") or ())


def _met(term: Mapping[str, Any], node: Node) -> bool:
    """All of its conditions together; a term without any is met by no node."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    return _all(labels, node.metadata.labels) and _all(fields, {"metadata.name": node.name})


def _all(conditions: Iterable[Mapping[str, Any]], values: Mapping[str, str]) -> bool:
    return all(
        Requirement(each["key"], _OPERATORS[each["operator"]], frozenset(each.get("values") or ())).matches(values)
        for each in conditions
    )
