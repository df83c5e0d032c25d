"""Kinds that are served in several versions and stored in one: events (core/v1 and events.k8s.io/v1), autoscalers, and
those of resource.k8s.io (`device_versions.py`)."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from podwire.kinds import device_versions
from podwire.kinds.resource import Conversion
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

_T = TypeVar("_T", list[Any], Object)

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""Fields of a core/v1 Event and what they are called in events.k8s.io/v1."""

_CORE_NAMES = {new: old for old, new in _EVENT_NAMES.items()}


def _renamed(obj: Object, names: Mapping[str, str], api_version: str) -> Object:
    renamed = {names.get(key, key): value for key, value in obj.items()}
    renamed["apiVersion"] = api_version
    return renamed


def _event_to_core(obj: Object) -> Object:
    return _renamed(obj, _CORE_NAMES, "v1")


def _event_from_core(obj: Object) -> Object:
    return _renamed(obj, _EVENT_NAMES, "events.k8s.io/v1")


_KEPT_IN = "autoscaling.alpha.kubernetes.io/"
"""Annotations in which autoscaling/v1 keeps what it has no field for, so that a write through it loses nothing."""

_CPU, _CURRENT_CPU = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"


def _scaler_to_v2(obj: Object) -> Object:
    """An autoscaling/v1 autoscaler as v2: the CPU percentage becomes a metric, the rest comes back from annotations."""
    spec, status, metadata = dict(obj.get("spec", {})), dict(obj.get("status", {})), dict(obj["metadata"])
    annotations = dict(metadata.get("annotations", {}))
    metrics = _cpu_metric(spec.pop(_CPU, None), "target") + _taken(annotations, "metrics", list)
    current = _cpu_metric(status.pop(_CURRENT_CPU, None), "current") + _taken(annotations, "current-metrics", list)
    _put(spec, metrics=metrics, behavior=_taken(annotations, "behavior", dict))
    _put(status, currentMetrics=current, conditions=_taken(annotations, "conditions", list))
    converted = {**obj, "apiVersion": "autoscaling/v2", "metadata": _annotated(metadata, annotations), "spec": spec}
    return {**converted, "status": status} if status or "status" in obj else converted


def _scaler_from_v2(obj: Object) -> Object:
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
    """The first CPU percentage, for which v1 has a field, and all other metrics."""
    for index, metric in enumerate(metrics):
        resource = metric.get("resource", {})
        value = resource.get(part, {})
        if resource.get("name") == "cpu" and set(value) <= {"type", "averageUtilization"} and len(value) > 0:
            percent = value.get("averageUtilization")
            if percent is not None:
                return percent, metrics[:index] + metrics[index + 1 :]
    return None, metrics


def _taken(annotations: Object, name: str, kind: type[_T]) -> _T:
    """What an annotation keeps; nothing when there is none or a client has written something else into it."""
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


def _builtin(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(f"the table of kinds lacks {api_version} {kind}")
    return found


def conversions() -> dict[Kind, Conversion]:
    """The served kinds whose objects lie in the store as another version."""
    return {
        _builtin("events.k8s.io/v1", "Event"): Conversion(_builtin("v1", "Event"), _event_to_core, _event_from_core),
        _builtin("autoscaling/v1", "HorizontalPodAutoscaler"): Conversion(
            _builtin("autoscaling/v2", "HorizontalPodAutoscaler"), _scaler_to_v2, _scaler_from_v2
        ),
        **{
            _builtin(f"{device_versions.GROUP}/{version}", kind): Conversion(
                _builtin(f"{device_versions.GROUP}/v1", kind), to_v1, from_v1, judged=True
            )
            for version, kind, to_v1, from_v1 in device_versions.all_of_them()
        },
    }
