"""What only creation sets: a first status, and what follows from the object's name, uid and labels.

Runs once, when name, uid and creationTimestamp are set, after admission has had its say and before validation.
"""

from collections.abc import Callable, Mapping
from typing import Any

from podwire.kinds.defaults.admission import DEFAULTS as _EXTENSIONS
from podwire.kinds.defaults.core import label_namespace
from podwire.kinds.defaults.qos import qos_class
from podwire.kinds.defaults.structs import STRUCTS, fill
from podwire.protocols.k8sapi.kinds import Kind

__all__ = ["prepare", "qos_class"]

_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")

_KEPT = frozenset({("", "Node")})
"""Kinds whose creator may say the status: a kubelet registers with all it knows."""


def prepare(kind: Kind, obj: dict[str, Any]) -> None:
    """Make an object that was defaulted ready to be created."""
    key = (kind.group, kind.kind)
    if key not in _KEPT and kind.subresource("status") is not None:
        obj.pop("status", None)
        if (parts := STRUCTS.get(key)) is not None:
            fill(obj, parts)
    if (function := _FUNCTIONS.get(key)) is not None:
        function(obj)


def _pod(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    status = pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod)}
    if spec.get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        if created := pod["metadata"].get("creationTimestamp"):
            gated["lastTransitionTime"] = created
        status["conditions"] = [gated]
    labels = pod["metadata"].get("labels") or {}
    if affinity := spec.get("affinity"):
        for term in _affinity_terms(affinity):
            _narrow(term, labels)
    for constraint in spec.get("topologySpreadConstraints") or ():
        _narrow(constraint, labels)


def _affinity_terms(affinity: Mapping[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = []
    for side in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(side) or {}
        terms += rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [each["podAffinityTerm"] for each in preferred if each.get("podAffinityTerm")]
    return terms


def _narrow(term: dict[str, Any], labels: Mapping[str, str]) -> None:
    """matchLabelKeys name labels of the new pod; their values join the selector now, whatever the labels become."""
    selector = term.get("labelSelector")
    if selector is None:  # selects nothing, whatever it is narrowed to
        return
    for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(keys) or ():
            if key in labels:
                expression = {"key": key, "operator": operator, "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(expression)


def _namespace(obj: dict[str, Any]) -> None:
    label_namespace(obj)
    obj["status"] = {"phase": "Active"}
    finalizers = obj["spec"].setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")


def _persistent_volume(obj: dict[str, Any]) -> None:
    obj["status"] = {"phase": "Pending"}
    if created := obj["metadata"].get("creationTimestamp"):
        obj["status"]["lastPhaseTransitionTime"] = created


def _persistent_volume_claim(obj: dict[str, Any]) -> None:
    """dataSource and dataSourceRef say the same where they can."""
    obj["status"] = {"phase": "Pending"}
    spec = obj["spec"]
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def _job(obj: dict[str, Any]) -> None:
    """A Job selects its own pods by its uid, unless it brings a selector and says so."""
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}job-name", metadata.get("name", ""))
        labels.setdefault(f"{prefix}controller-uid", metadata.get("uid", ""))
    matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    matched.setdefault("batch.kubernetes.io/controller-uid", metadata.get("uid", ""))


_FUNCTIONS: Mapping[tuple[str, str], Callable[[dict[str, Any]], None]] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolume"): _persistent_volume,
    ("", "PersistentVolumeClaim"): _persistent_volume_claim,
    ("", "Pod"): _pod,
    ("batch", "Job"): _job,
    _DEFINITION: _EXTENSIONS[_DEFINITION],
}
