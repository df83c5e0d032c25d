"""Warnings about Services whose fields contradict each other or are deprecated, in upstream's words."""

from collections.abc import Iterator, Mapping
from typing import Any

from podwire.kinds.field_checks import Object

HINTS = "service.kubernetes.io/topology-aware-hints"
MODE = "service.kubernetes.io/topology-mode"


def service_warnings(new: Mapping[str, Any], _old: Mapping[str, Any] | None) -> list[str]:
    """Returns the warnings about a Service; an update repeats them, because they stay true."""
    return list(_warnings(new["spec"], new["metadata"].get("annotations") or {}))


def _warnings(spec: Object, annotations: Object) -> Iterator[str]:
    if HINTS in annotations:
        yield f"annotation {HINTS} is deprecated, please use {MODE} instead"
    named = spec.get("type") == "ExternalName"
    headless = spec.get("type") == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("externalIPs"):
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity", "None") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    if spec.get("externalIPs") and not headless and not named:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("externalIPs") and named:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec.get("externalName") and not named:
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
