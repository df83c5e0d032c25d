"""HorizontalPodAutoscaler, in autoscaling/v2, which is stored, and v1."""

from typing import Any, TypeVar

import msgspec

from podwire.kinds.builtin.autoscaling.autoscaler_validation import validate_autoscaler, validate_status
from podwire.kinds.stored import Object
from podwire.kinds.strategy import Conversion, Strategy, as_on_create
from podwire.kinds.tables import NONE, UNKNOWN, UNSET, Json, age_of, elements, name_of, number, part, shown, text
from podwire.protocols.k8sapi.builtin import BUILTIN

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_SHOWN = 2
"""More metrics than these are only counted."""

_T = TypeVar("_T", list[Any], Object)
_KEPT_IN = "autoscaling.alpha.kubernetes.io/"
"""Annotations in which autoscaling/v1 keeps what it has no field for, so that a write through it loses nothing."""


def default(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    spec.setdefault("minReplicas", 1)
    if obj.get("apiVersion") == "autoscaling/v1":
        obj["status"].setdefault("currentReplicas", 0)
        return
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if (behavior := spec.get("behavior")) is not None:
        pods = {"type": "Pods", "value": 4, "periodSeconds": 15}
        percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
        up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]}
        down = {"selectPolicy": "Max", "policies": [dict(percent)]}
        behavior["scaleUp"] = {**up, **(behavior.get("scaleUp") or {})}
        behavior["scaleDown"] = {**down, **(behavior.get("scaleDown") or {})}


def row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    target = part(spec, "scaleTargetRef")
    return [
        name_of(obj),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        _metrics(spec, part(obj, "status")),
        shown(spec, "minReplicas", UNSET),
        number(spec, "maxReplicas"),
        number(part(obj, "status"), "currentReplicas"),
        age_of(obj, now),
    ]


def _metrics(spec: Json, status: Json) -> str:
    targets, current = elements(spec, "metrics"), elements(status, "currentMetrics")
    shown_metrics = [
        _metric(metric, current[index] if index < len(current) else {}) for index, metric in enumerate(targets)
    ]
    if "targetCPUUtilizationPercentage" in spec:  # autoscaling/v1 knows this one metric only
        shown_metrics.insert(
            0,
            f"cpu: {_percent(status, 'currentCPUUtilizationPercentage', UNKNOWN)}/"
            f"{_percent(spec, 'targetCPUUtilizationPercentage', '<auto>')}",
        )
    if not shown_metrics:
        return NONE
    first = ", ".join(shown_metrics[:_SHOWN])
    return f"{first} + {len(shown_metrics) - _SHOWN} more..." if len(shown_metrics) > _SHOWN else first


def _metric(metric: Json, seen: Json) -> str:
    kind = text(metric, "type")
    source = _SOURCES.get(kind)
    if source is None:
        return "<unknown type>"
    target, current = part(metric, source, "target"), part(seen, source, "current")
    average = "averageValue" in target
    if source in ("resource", "containerResource"):
        resource = text(part(metric, source), "name")
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


_CPU, _CURRENT_CPU = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"


def to_v2(obj: Object) -> Object:
    """Returns an autoscaling/v1 autoscaler as v2: the CPU percentage becomes a metric, the rest is restored from
    annotations."""
    spec, status, metadata = dict(obj.get("spec", {})), dict(obj.get("status", {})), dict(obj["metadata"])
    annotations = dict(metadata.get("annotations", {}))
    metrics = _cpu_metric(spec.pop(_CPU, None), "target") + _taken(annotations, "metrics", list)
    current = _cpu_metric(status.pop(_CURRENT_CPU, None), "current") + _taken(annotations, "current-metrics", list)
    _put(spec, metrics=metrics, behavior=_taken(annotations, "behavior", dict))
    _put(status, currentMetrics=current, conditions=_taken(annotations, "conditions", list))
    converted = {**obj, "apiVersion": "autoscaling/v2", "metadata": _annotated(metadata, annotations), "spec": spec}
    return {**converted, "status": status} if status or "status" in obj else converted


def from_v2(obj: Object) -> Object:
    spec, status, metadata = dict(obj.get("spec", {})), dict(obj.get("status", {})), dict(obj["metadata"])
    percent, metrics = _split(spec.pop("metrics", []), "target")
    now, current = _split(status.pop("currentMetrics", []), "current")
    kept = {"metrics": metrics, "current-metrics": current, "behavior": spec.pop("behavior", None),
            "conditions": status.pop("conditions", None)}  # fmt: skip
    annotations = dict(metadata.get("annotations", {}))
    annotations |= {f"{_KEPT_IN}{name}": msgspec.json.encode(value).decode() for name, value in kept.items() if value}
    _put(spec, **{_CPU: percent})
    _put(status, **{_CURRENT_CPU: now})
    converted = {**obj, "apiVersion": "autoscaling/v1", "metadata": _annotated(metadata, annotations), "spec": spec}
    return {**converted, "status": status} if "status" in obj else converted


def _cpu_metric(percent: int | None, part: str) -> list[Any]:
    if percent is None:
        return []
    utilization = {"averageUtilization": percent}
    value = {"type": "Utilization", **utilization} if part == "target" else utilization
    return [{"type": "Resource", "resource": {"name": "cpu", part: value}}]


def _split(metrics: list[Any], part: str) -> tuple[int | None, list[Any]]:
    """Returns the first CPU percentage, for which v1 has a field, and all other metrics."""
    for index, metric in enumerate(metrics):
        resource = metric.get("resource", {})
        value = resource.get(part, {})
        if resource.get("name") == "cpu" and set(value) <= {"type", "averageUtilization"} and len(value) > 0:
            percent = value.get("averageUtilization")
            if percent is not None:
                return percent, metrics[:index] + metrics[index + 1 :]
    return None, metrics


def _taken(annotations: Object, name: str, kind: type[_T]) -> _T:
    """Removes an annotation and returns its content; empty when it does not exist or cannot be decoded."""
    text = annotations.pop(f"{_KEPT_IN}{name}", "")
    try:
        return msgspec.json.decode(text, type=kind) if text else kind()
    except msgspec.MsgspecError:
        return kind()


def _put(part: Object, **values: Any) -> None:
    for name, value in values.items():
        if value or value == 0:
            part[name] = value


def _annotated(metadata: Object, annotations: Object) -> Object:
    metadata.pop("annotations", None)
    return {**metadata, "annotations": annotations} if annotations else metadata


AUTOSCALER = Strategy(
    group="autoscaling",
    kind="HorizontalPodAutoscaler",
    parts={"spec": {"scaleTargetRef": {}}, "status": {"desiredReplicas": 0}},
    conversions={"v1": Conversion(BUILTIN["autoscaling/v2", "HorizontalPodAutoscaler"], to_v2, from_v2)},
    default=default,
    validate_create=validate_autoscaler,
    validate_update=as_on_create(validate_autoscaler),
    validate_subresources={"status": validate_status},
    columns="Name|Reference|Targets|MinPods|MaxPods|Replicas|Age",
    row=row,
)
