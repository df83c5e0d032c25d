"""Defaults of role bindings, priority classes and flow control."""

from typing import Any

RBAC = "rbac.authorization.k8s.io"
_FLOWCONTROL = "flowcontrol.apiserver.k8s.io"


def _binding(obj: dict[str, Any]) -> None:
    if not obj["roleRef"].get("apiGroup"):
        obj["roleRef"]["apiGroup"] = RBAC
    for subject in obj.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = RBAC


def _priority_class(obj: dict[str, Any]) -> None:
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _flow_schema(obj: dict[str, Any]) -> None:
    if not obj["spec"].get("matchingPrecedence"):
        obj["spec"]["matchingPrecedence"] = 1000


def _priority_level(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    if (exempt := spec.get("exempt")) is not None:
        exempt.setdefault("nominalConcurrencyShares", 0)
        exempt.setdefault("lendablePercent", 0)
    if (limited := spec.get("limited")) is not None:
        limited.setdefault("nominalConcurrencyShares", 30)
        limited.setdefault("lendablePercent", 0)
        queuing = limited.setdefault("limitResponse", {}).get("queuing")
        if queuing is not None:
            for name, number in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
                if not queuing.get(name):
                    queuing[name] = number


DEFAULTS = {
    (RBAC, "ClusterRoleBinding"): _binding,
    (RBAC, "RoleBinding"): _binding,
    (_FLOWCONTROL, "FlowSchema"): _flow_schema,
    (_FLOWCONTROL, "PriorityLevelConfiguration"): _priority_level,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
}
