"""Kinds that are served in two versions and stored in one: events (core/v1 and events.k8s.io/v1) and autoscalers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.apiserver.registry import Conversion
from podwire.apiserver.stored import Object
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

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


METRICS_ANNOTATION = "autoscaling.alpha.kubernetes.io/metrics"
"""Where autoscaling/v1 keeps the metrics for which it has no field."""

_CPU = "targetCPUUtilizationPercentage"


def _scaler_to_v2(obj: Object) -> Object:
    """An autoscaling/v1 autoscaler as v2: the CPU percentage becomes a metric, others come back from the annotation."""
    spec, metadata = dict(obj.get("spec", {})), dict(obj["metadata"])
    annotations = dict(metadata.get("annotations", {}))
    metrics: list[Any] = _kept_metrics(annotations.pop(METRICS_ANNOTATION, ""))
    if (percent := spec.pop(_CPU, None)) is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}, *metrics]
    if metrics:
        spec["metrics"] = metrics
    return {**obj, "apiVersion": "autoscaling/v2", "metadata": _annotated(metadata, annotations), "spec": spec}


def _scaler_from_v2(obj: Object) -> Object:
    spec, metadata = dict(obj.get("spec", {})), dict(obj["metadata"])
    spec.pop("behavior", None)
    others = []
    for metric in spec.pop("metrics", []):
        resource = metric.get("resource", {})
        percent = resource.get("target", {}).get("averageUtilization")
        if resource.get("name") == "cpu" and percent is not None and _CPU not in spec:
            spec[_CPU] = percent
        else:
            others.append(metric)
    annotations = dict(metadata.get("annotations", {}))
    if others:
        annotations[METRICS_ANNOTATION] = msgspec.json.encode(others).decode()
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": _annotated(metadata, annotations), "spec": spec}


def _kept_metrics(text: str) -> list[Any]:
    try:
        kept = msgspec.json.decode(text) if text else []
    except msgspec.DecodeError:
        return []
    return kept if isinstance(kept, list) else []


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
    }
