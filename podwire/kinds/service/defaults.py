"""Defaults of a Service."""

from typing import Any


def default(obj: dict[str, Any]) -> None:
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
