"""Rows of autoscalers: how far each metric is from its target."""

from typing import Any

from podwire.kinds.tables.values import (
    NONE,
    UNKNOWN,
    UNSET,
    Json,
    Rows,
    age,
    elements,
    name,
    number,
    part,
    shown,
    text,
)

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_SHOWN = 2
"""More metrics than these are only counted."""


def autoscaler(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    target = part(spec, "scaleTargetRef")
    return [
        name(obj),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        _metrics(spec, part(obj, "status")),
        shown(spec, "minReplicas", UNSET),
        number(spec, "maxReplicas"),
        number(part(obj, "status"), "currentReplicas"),
        age(obj, now),
    ]


def _metrics(spec: Json, status: Json) -> str:
    wanted, current = elements(spec, "metrics"), elements(status, "currentMetrics")
    told = [_metric(each, current[index] if index < len(current) else {}) for index, each in enumerate(wanted)]
    if "targetCPUUtilizationPercentage" in spec:  # autoscaling/v1 knows this one metric only
        told.insert(
            0,
            f"cpu: {_percent(status, 'currentCPUUtilizationPercentage', UNKNOWN)}/"
            f"{_percent(spec, 'targetCPUUtilizationPercentage', '<auto>')}",
        )
    if not told:
        return NONE
    first = ", ".join(told[:_SHOWN])
    return f"{first} + {len(told) - _SHOWN} more..." if len(told) > _SHOWN else first


def _metric(wanted: Json, seen: Json) -> str:
    kind = text(wanted, "type")
    source = _SOURCES.get(kind)
    if source is None:
        return "<unknown type>"
    target, current = part(wanted, source, "target"), part(seen, source, "current")
    average = "averageValue" in target
    if source in ("resource", "containerResource"):
        resource = text(part(wanted, source), "name")
        if average:
            return f"{resource}: {shown(current, 'averageValue', UNKNOWN)}/{shown(target, 'averageValue')}"
        seen_share, target_share = (
            _percent(current, "averageUtilization", UNKNOWN),
            _percent(target, "averageUtilization", "<auto>"),
        )
        return f"{resource}: {seen_share}/{target_share}"
    if source == "pods":
        return f"{shown(current, 'averageValue', UNKNOWN)}/{shown(target, 'averageValue', '0')}"
    if average:
        return f"{shown(current, 'averageValue', UNKNOWN)}/{shown(target, 'averageValue')} (avg)"
    return f"{shown(current, 'value', UNKNOWN)}/{shown(target, 'value', '0')}"


def _percent(value: Json, key: str, default: str) -> str:
    return f"{number(value, key)}%" if key in value else default


ROWS: Rows = {("autoscaling", "horizontalpodautoscalers"): autoscaler}
