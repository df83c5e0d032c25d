"""The quality-of-service class of a pod, from what its containers ask for and are limited to."""

from collections.abc import Mapping
from typing import Any

from podwire.objects import quantity

BEST_EFFORT, BURSTABLE, GUARANTEED = "BestEffort", "Burstable", "Guaranteed"


def qos_class(pod: Mapping[str, Any]) -> str:
    """Guaranteed if all have requests of cpu and memory equal to their limits, BestEffort if none has any."""
    spec = pod.get("spec") or {}
    if (resources := spec.get("resources")) and (resources.get("requests") or resources.get("limits")):
        return _class(resources)
    classes = {
        _class(container.get("resources") or {})
        for name in ("initContainers", "containers")
        for container in spec.get(name) or ()
    }
    if len(classes) > 1:
        return BURSTABLE
    return classes.pop() if classes else BEST_EFFORT


def _class(resources: Mapping[str, Any]) -> str:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if not requests and not limits:
        return BEST_EFFORT
    cpu = _one(requests.get("cpu"), limits.get("cpu"))
    memory = _one(requests.get("memory"), limits.get("memory"))
    return cpu if cpu == memory else BURSTABLE


def _one(request: str | None, limit: str | None) -> str:
    requested, limited = quantity.parse(request or "0"), quantity.parse(limit or "0")
    if requested != limited:
        return BURSTABLE
    return GUARANTEED if requested else BEST_EFFORT
