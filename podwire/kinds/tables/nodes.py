"""Rows of nodes and of what nodes hold: leases, runtime classes."""

from typing import Any

from podwire.kinds.tables.values import NONE, UNKNOWN, Json, Rows, age, condition, elements, name, part, text

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def node(obj: Json, now: float) -> list[Any]:
    status = part(obj, "status")
    info = part(status, "nodeInfo")
    return [
        name(obj),
        _status(obj),
        ",".join(_roles(part(obj, "metadata", "labels"))) or NONE,
        age(obj, now),
        text(info, "kubeletVersion"),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        text(info, "osImage", UNKNOWN),
        text(info, "kernelVersion", UNKNOWN),
        text(info, "containerRuntimeVersion", UNKNOWN),
    ]


def _status(obj: Json) -> str:
    ready = condition(part(obj, "status"), "Ready")
    told = "Unknown" if not ready else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{told},SchedulingDisabled" if part(obj, "spec").get("unschedulable") is True else told


def _roles(labels: Json) -> list[str]:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(text(labels, _ROLE_LABEL))
    return sorted(roles - {""})


def _address(status: Json, kind: str) -> str:
    for each in elements(status, "addresses"):
        if each.get("type") == kind:
            return text(each, "address")
    return NONE


def lease(obj: Json, now: float) -> list[Any]:
    return [name(obj), text(part(obj, "spec"), "holderIdentity"), age(obj, now)]


def runtime_class(obj: Json, now: float) -> list[Any]:
    return [name(obj), text(obj, "handler"), age(obj, now)]


ROWS: Rows = {
    ("", "nodes"): node,
    ("coordination.k8s.io", "leases"): lease,
    ("node.k8s.io", "runtimeclasses"): runtime_class,
}
