"""Services: ports, type, addresses, and what of them may change."""

from collections.abc import Sequence
from typing import Any

from podwire.kinds.builtin.core.service import cluster_ips
from podwire.kinds.field_checks import (
    Choice,
    Errors,
    Object,
    endpoint_ip,
    labels,
    named,
    port_number,
    port_or_name,
    unchanged,
    within,
)
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid, required

_TYPES = Choice(("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"))
PROTOCOLS = Choice(("SCTP", "TCP", "UDP"))
_AFFINITIES = Choice(("ClientIP", "None"))
_EXTERNAL_POLICIES = Choice(("Cluster", "Local"))
_INTERNAL_POLICIES = Choice(("Cluster", "Local"))
_DISTRIBUTIONS = Choice(("PreferClose", "PreferSameZone", "PreferSameNode"))
_LONGEST_AFFINITY = 86400


def create(obj: Object) -> list[FieldError]:
    return _service(obj.get("spec") or {}, {})


def update(new: Object, old: Object) -> list[FieldError]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return []
    errors: Errors = []
    cluster_ips.changes(spec, before, errors)
    if spec.get("type") == before.get("type") == "LoadBalancer":
        path = "spec.loadBalancerClass"
        if spec.get("loadBalancerClass") != before.get("loadBalancerClass"):
            errors.append(invalid(path, spec.get("loadBalancerClass"), "may not change once set"))
    if _needs_health_check(spec) and _needs_health_check(before):
        path = "spec.healthCheckNodePort"
        unchanged(spec.get("healthCheckNodePort"), before.get("healthCheckNodePort"), path, errors)
    return errors + _service(spec, before)


def _service(spec: Object, before: Object) -> list[FieldError]:
    errors: Errors = []
    ports = spec.get("ports") or ()
    if not ports and not headless(spec) and spec.get("type") != "ExternalName":
        errors.append(required("spec.ports"))
    kind = spec.get("type")
    if kind in ("LoadBalancer", "NodePort") and headless(spec):
        errors.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(field):
                errors.append(forbidden(f"spec.{field}", "may not be set for ExternalName services"))
        if name := (spec.get("externalName") or "").removesuffix("."):
            named(names.dns_subdomain, name, "spec.externalName", errors)
        else:
            errors.append(required("spec.externalName"))
    _ports(ports, errors)
    labels(spec.get("selector") or {}, "spec.selector", errors)
    _affinity(spec, errors)
    if spec.get("type") != "ExternalName":
        cluster_ips.cluster_ips(spec, before.get("clusterIPs") or (), errors)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        if address not in (before.get("externalIPs") or ()):
            endpoint_ip(address, f"spec.externalIPs[{index}]", errors)
    _TYPES.require(spec.get("type"), "spec.type", errors)
    _distinct_ports(spec, ports, errors)
    _balancer(spec, before, errors)
    _traffic(spec, errors)
    return errors


def headless(spec: Object) -> bool:
    return list(spec.get("clusterIPs") or ()) == ["None"] or spec.get("clusterIP") == "None"


def _ports(ports: Sequence[Object], errors: Errors) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        name = port.get("name")
        if name:
            named(names.dns_label, name, f"{path}.name", errors)
            if name in seen:
                errors.append(duplicate(f"{path}.name", name))
            seen.add(name)
        elif len(ports) > 1:
            errors.append(required(f"{path}.name"))
        port_number(port.get("port", 0), f"{path}.port", errors)
        PROTOCOLS.require(port.get("protocol"), f"{path}.protocol", errors)
        port_or_name(port.get("targetPort", 0), f"{path}.targetPort", errors)
        if (protocol := port.get("appProtocol")) is not None:
            named(names.qualified_name, protocol, f"{path}.appProtocol", errors)


def _distinct_ports(spec: Object, ports: Sequence[Object], errors: Errors) -> None:
    """No node port without a type that has them, and no port twice for one protocol."""
    nodes: set[tuple[Any, Any]] = set()
    numbers: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        path, protocol = f"spec.ports[{index}]", port.get("protocol")
        if node := port.get("nodePort"):
            if spec.get("type") == "ClusterIP":
                errors.append(forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'"))
            if (protocol, node) in nodes:
                errors.append(duplicate(f"{path}.nodePort", node))
            nodes.add((protocol, node))
        if (protocol, port.get("port")) in numbers:
            errors.append(duplicate(path, {"protocol": protocol, "port": port.get("port")}))
        numbers.add((protocol, port.get("port")))


def _affinity(spec: Object, errors: Errors) -> None:
    affinity, config = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig")
    _AFFINITIES.require(affinity, "spec.sessionAffinity", errors)
    if affinity == "None" and config is not None:
        detail = "must not be set when session affinity is None"
        errors.append(forbidden("spec.sessionAffinityConfig", detail))
    elif affinity == "ClientIP":
        path = "spec.sessionAffinityConfig"
        seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
        if seconds is None:
            detail = "when session affinity type is ClientIP"
            errors.append(required(path, detail))
        elif not 0 < seconds <= _LONGEST_AFFINITY:
            detail = f"must be greater than 0 and less than {_LONGEST_AFFINITY}"
            errors.append(invalid(f"{path}.clientIP.timeoutSeconds", seconds, detail))


def _balancer(spec: Object, before: Object, errors: Errors) -> None:
    balanced = spec.get("type") == "LoadBalancer"
    only = "may only be used when `type` is 'LoadBalancer'"
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges and not balanced:
        errors.append(forbidden("spec.LoadBalancerSourceRanges", only))
    for index, range_ in enumerate(ranges):
        if range_ not in (before.get("loadBalancerSourceRanges") or ()):
            named(names.cidr, range_.strip(), f"spec.LoadBalancerSourceRanges[{index}]", errors)
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        errors.append(forbidden("spec.allocateLoadBalancerNodePorts", only))
    if (name := spec.get("loadBalancerClass")) is not None:
        if not balanced:
            errors.append(forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'"))
        named(names.qualified_name, name, "spec.loadBalancerClass", errors)


def _traffic(spec: Object, errors: Errors) -> None:
    kind, policy = spec.get("type"), spec.get("externalTrafficPolicy")
    outside = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if outside:
        _EXTERNAL_POLICIES.require(policy, "spec.externalTrafficPolicy", errors)
    elif policy:
        detail = "may only be set for externally-accessible services"
        errors.append(invalid("spec.externalTrafficPolicy", policy, detail))
    if (port := spec.get("healthCheckNodePort") or 0) and not _needs_health_check(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(invalid("spec.healthCheckNodePort", port, detail))
    elif port:
        within(port, 1, 65535, "spec.healthCheckNodePort", errors)
    if (inside := spec.get("internalTrafficPolicy")) is not None:
        _INTERNAL_POLICIES.check(inside, "spec.internalTrafficPolicy", errors)
    if (distribution := spec.get("trafficDistribution")) is not None:
        _DISTRIBUTIONS.check(distribution, "spec.trafficDistribution", errors)


def _needs_health_check(spec: Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
