"""Scopes of a quota: which pods and claims it counts. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from podwire.kinds.builtin.core.pod.qos import BEST_EFFORT, qos_class

Object = Mapping[str, Any]
Requirement = Mapping[str, Any]
"""scopeName, operator and values."""

PRIORITY_CLASS, VOLUME_CLASS = "PriorityClass", "VolumeAttributesClass"


def requirements(quota: Object) -> list[Requirement]:
    """Returns everything that an object must match to count for a quota."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    return [*scopes, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]


def pod_matches(requirement: Requirement, pod: Object) -> bool:
    spec = pod.get("spec") or {}
    match requirement.get("scopeName"):
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return qos_class(pod) == BEST_EFFORT
        case "NotBestEffort":
            return qos_class(pod) != BEST_EFFORT
        case "PriorityClass":
            name = spec.get("priorityClassName")
            return _selects(requirement, [name] if name else [])
        case "CrossNamespacePodAffinity":
            return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec))
    return False


def volume_claim_matches(requirement: Requirement, claim: Object) -> bool:
    if requirement.get("scopeName") != VOLUME_CLASS:
        return False
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    names = {
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    }
    return _selects(requirement, [name for name in names if name])


def is_terminating(pod: Object) -> bool:
    """Returns whether a pod ends by itself: it has a deadline."""
    seconds = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    return seconds is not None and seconds >= 0


def _selects(requirement: Requirement, names: list[str]) -> bool:
    values = requirement.get("values") or ()
    match requirement.get("operator"):
        case "Exists":
            return bool(names)
        case "DoesNotExist":
            return not names
        case "In":
            return any(name in values for name in names)
        case "NotIn":
            return not names or any(name not in values for name in names)
    return False


def _terms(spec: Object) -> Iterator[Object]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}
