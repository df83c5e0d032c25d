"""Defaults of the core kinds that are no pods."""

import base64
from typing import Any

from podwire.kinds.defaults.pod import default_template
from podwire.kinds.defaults.resources import round_up

METADATA_NAME = "kubernetes.io/metadata.name"


def _namespace(obj: dict[str, Any]) -> None:
    label_namespace(obj)
    if not obj["status"].get("phase"):
        obj["status"]["phase"] = "Active"


def label_namespace(obj: dict[str, Any]) -> None:
    """Every namespace carries its name as a label; one with a generateName only once it is named."""
    metadata = obj.get("metadata") or {}
    if name := metadata.get("name"):
        metadata.setdefault("labels", {})[METADATA_NAME] = name


def _node(obj: dict[str, Any]) -> None:
    status = obj["status"]
    capacity = status.get("capacity")
    if status.get("allocatable") is None and capacity is not None:
        status["allocatable"] = dict(capacity)
    round_up(capacity)
    round_up(status.get("allocatable"))


def _secret(obj: dict[str, Any]) -> None:
    """stringData is for writing only: it becomes data."""
    if texts := obj.pop("stringData", None):
        data = obj.setdefault("data", {})
        for key, text in texts.items():
            data[key] = base64.b64encode(text.encode()).decode()
    if not obj.get("type"):
        obj["type"] = "Opaque"


def _service(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    _default_affinity(spec)
    kind = spec["type"] = spec.get("type") or "ClusterIP"
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    outside = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if outside and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in obj["status"]["loadBalancer"].get("ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _default_affinity(spec: dict[str, Any]) -> None:
    affinity = spec.get("sessionAffinity") or "None"
    spec["sessionAffinity"] = affinity
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}


def _endpoints(obj: dict[str, Any]) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def _limit_range(obj: dict[str, Any]) -> None:
    for item in obj["spec"].get("limits") or ():
        if item.get("type") == "Container":
            _default_limits(item)
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            round_up(item.get(name))


def _default_limits(item: dict[str, Any]) -> None:
    """The default limit is the maximum; the default request is that limit, else the minimum."""
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    if limits:
        item["default"] = limits
    if requests:
        item["defaultRequest"] = requests


def _resource_quota(obj: dict[str, Any]) -> None:
    round_up(obj["spec"].get("hard"))
    round_up(obj["status"].get("hard"))
    round_up(obj["status"].get("used"))


def _replication_controller(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    template = spec.get("template")
    if template is not None:
        template.setdefault("metadata", {})
        template.setdefault("spec", {})
        if labels := template["metadata"].get("labels"):
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not obj["metadata"].get("labels"):
                obj["metadata"]["labels"] = dict(labels)
        default_template(template)
    spec.setdefault("replicas", 1)


DEFAULTS = {
    ("", "Endpoints"): _endpoints,
    ("", "LimitRange"): _limit_range,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "ReplicationController"): _replication_controller,
    ("", "ResourceQuota"): _resource_quota,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
}
