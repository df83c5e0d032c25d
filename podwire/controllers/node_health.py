"""Conditions and taints that follow from a node's health. Pure."""

from collections.abc import Sequence
from typing import Any

from podwire.protocols.k8sapi.watch import Object

READY = "Ready"
REPORTED = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
"""Conditions that every kubelet reports."""

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_TAINTS = {
    (READY, "False"): NOT_READY,
    (READY, "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
"""The taint of a condition and its status."""

_FAILING = (NOT_READY, UNREACHABLE)
_OURS = {
    *((key, NO_SCHEDULE) for key in (*_TAINTS.values(), UNSCHEDULABLE)),
    *((key, NO_EXECUTE) for key in _FAILING),
}


def conditions_of(node: Object) -> list[Object]:
    return list((node.get("status") or {}).get("conditions") or ())


def condition(node: Object, type_: str) -> Object | None:
    return next((condition_ for condition_ in conditions_of(node) if condition_.get("type") == type_), None)


def is_ready(node: Object) -> bool:
    found = condition(node, READY)
    return found is not None and found.get("status") == "True"


def heartbeat(node: Object) -> str:
    """Returns the kubelet's last report, by its own clock: useful to detect a new report, not to measure time."""
    found = condition(node, READY)
    return str((found or {}).get("lastHeartbeatTime") or "")


def with_unknown_conditions(node: Object, now: str) -> Object | None:
    """Returns the node with its conditions set to Unknown; None if they are already."""
    known = conditions_of(node)
    known_types = {condition_.get("type") for condition_ in known}
    never = [_never(type_, node, now) for type_ in REPORTED if type_ not in known_types]
    changed = [_unknown(condition_, now) for condition_ in known]
    if not never and changed == known:
        return None
    return {**node, "status": {**(node.get("status") or {}), "conditions": [*changed, *never]}}


def _never(type_: str, node: Object, now: str) -> Object:
    return {
        "type": type_,
        "status": "Unknown",
        "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.",
        "lastHeartbeatTime": node["metadata"].get("creationTimestamp"),
        "lastTransitionTime": now,
    }


def _unknown(condition_: Object, now: str) -> Object:
    if condition_.get("type") not in REPORTED or condition_.get("status") == "Unknown":
        return condition_
    return {
        **condition_,
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": now,
    }


def is_evicting(node: Object) -> bool:
    """Returns whether the node has a taint of ours that evicts its pods."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint.get("key") in _FAILING and taint.get("effect") == NO_EXECUTE for taint in taints)


def tainted(node: Object, now: str, *, evicts: bool = True) -> Object | None:
    """Returns the node with the taints of its conditions and cordon; None if it has exactly these.

    Without `evicts` it has none that evicts its pods. Foreign taints stay, and so does the time since which a taint
    exists.
    """
    spec: dict[str, Any] = node.get("spec") or {}
    before = list(spec.get("taints") or ())
    wanted = _wanted(node, evicts=evicts)
    kept = [taint for taint in before if _key(taint) not in _OURS or _key(taint) in wanted]
    there = {_key(taint) for taint in kept}
    new = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in wanted if (key, effect) not in there]
    after = [*kept, *new]
    return {**node, "spec": {**spec, "taints": after}} if after != before else None


def _wanted(node: Object, *, evicts: bool) -> list[tuple[str, str]]:
    keys = [
        taint
        for condition_ in conditions_of(node)
        if (taint := _TAINTS.get((condition_.get("type", ""), condition_.get("status", "")))) is not None
    ]
    if (node.get("spec") or {}).get("unschedulable"):
        keys.append(UNSCHEDULABLE)
    evicting = [(key, NO_EXECUTE) for key in keys if key in _FAILING and evicts]
    return [*((key, NO_SCHEDULE) for key in keys), *evicting]


def _key(taint: Object) -> tuple[str, str]:
    return taint.get("key", ""), taint.get("effect", "")


def not_ready_pod(pod: Object, now: str) -> Object | None:
    """Returns the pod with Ready=False, because its node is not ready; None if it already is."""
    status = pod.get("status") or {}
    before: Sequence[Object] = status.get("conditions") or ()
    after = [
        {**condition_, "status": "False", "lastTransitionTime": now}
        if (condition_.get("type"), condition_.get("status")) == (READY, "True")
        else condition_
        for condition_ in before
    ]
    return {**pod, "status": {**status, "conditions": after}} if after != list(before) else None
