"""Defaults of network policies, ingresses and endpoint slices."""

from typing import Any


def _network_policy(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")


def _ingress(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    _default_backend(spec.get("defaultBackend"))
    for rule in spec.get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            _default_backend(path.setdefault("backend", {}))


def _default_backend(backend: dict[str, Any] | None) -> None:
    if backend and (service := backend.get("service")) is not None:
        service.setdefault("port", {})


def _ingress_class(obj: dict[str, Any]) -> None:
    if (parameters := obj["spec"].get("parameters")) is not None:
        parameters.setdefault("scope", "Cluster")


def _endpoint_slice(obj: dict[str, Any]) -> None:
    for endpoint in obj.get("endpoints") or ():
        endpoint.setdefault("conditions", {})
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


_GROUP = "networking.k8s.io"

DEFAULTS = {
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    (_GROUP, "Ingress"): _ingress,
    (_GROUP, "IngressClass"): _ingress_class,
    (_GROUP, "NetworkPolicy"): _network_policy,
}
