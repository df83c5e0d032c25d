"""The Strategy of Service, with its defaults."""

from typing import Any

from podwire.kinds.builtin.core.service import table, validate
from podwire.kinds.builtin.core.service.warnings import service_warnings
from podwire.kinds.strategy import Strategy, selectable
from podwire.objects import names


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
    affinity = spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}


SERVICE = Strategy(
    group="",
    kind="Service",
    check_name=names.dns_label,
    stored_as="services/specs",
    parts={"spec": {}, "status": {"loadBalancer": {}}},
    default=default,
    allow_create_on_update=True,
    validate_create=validate.create,
    validate_update=validate.update,
    warnings=service_warnings,
    returns_deleted=True,
    selectable=(selectable("spec.clusterIP"), selectable("spec.type")),
    columns="Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector*",
    row=table.row,
)
