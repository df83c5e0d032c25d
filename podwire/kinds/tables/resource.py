"""Rows of dynamic resource allocation: claims, classes, templates, slices, taint rules."""

from typing import Any

from podwire.kinds.tables.values import Json, Rows, age, count, deleted, name, part, text


def named(obj: Json, now: float) -> list[Any]:
    return [name(obj), age(obj, now)]


def claim(obj: Json, now: float) -> list[Any]:
    return [name(obj), ",".join(_states(obj)), age(obj, now)]


def _states(obj: Json) -> list[str]:
    status = part(obj, "status")
    states = ["deleted"] if deleted(obj) else []
    if not isinstance(status.get("allocation"), dict):
        return states or ["pending"]
    states.append("allocated")
    if count(status, "reservedFor"):
        states.append("reserved")
    return states


def resource_slice(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [name(obj), text(spec, "nodeName"), text(spec, "driver"), text(part(spec, "pool"), "name"), age(obj, now)]


ROWS: Rows = {
    ("resource.k8s.io", "deviceclasses"): named,
    ("resource.k8s.io", "devicetaintrules"): named,
    ("resource.k8s.io", "resourceclaims"): claim,
    ("resource.k8s.io", "resourceclaimtemplates"): named,
    ("resource.k8s.io", "resourceslices"): resource_slice,
}
