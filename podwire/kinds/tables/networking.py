"""Rows of services, endpoints, ingresses and addresses."""

from collections.abc import Iterator
from typing import Any

from podwire.kinds.tables.selectors import selector
from podwire.kinds.tables.values import (
    NONE,
    UNKNOWN,
    UNSET,
    Json,
    Rows,
    age,
    count,
    elements,
    labels,
    name,
    number,
    part,
    shown,
    some,
    strings,
    text,
)

_LISTED = 3
"""More endpoints, ports or hosts than these are only counted."""


def service(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    addresses = strings(spec, "clusterIPs") or [text(spec, "clusterIP")]
    return [
        name(obj),
        text(spec, "type"),
        addresses[0] or NONE,
        _external(spec, part(obj, "status")),
        ",".join(map(_service_port, elements(spec, "ports"))) or NONE,
        age(obj, now),
        labels(spec, "selector"),
    ]


def _external(spec: Json, status: Json) -> str:
    kind, extra = text(spec, "type"), strings(spec, "externalIPs")
    if kind == "ExternalName":
        return text(spec, "externalName")
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(extra) or NONE
    if kind == "LoadBalancer":
        return ",".join([*_balancers(status), *extra]) or "<pending>"
    return UNKNOWN


def _balancers(status: Json) -> list[str]:
    entries = elements(part(status, "loadBalancer"), "ingress")
    return sorted({text(each, "ip") or text(each, "hostname") for each in entries} - {""})


def _service_port(port: Json) -> str:
    node_port = number(port, "nodePort")
    outside = f":{node_port}" if node_port > 0 else ""
    return f"{number(port, 'port')}{outside}/{text(port, 'protocol', 'TCP')}"


def endpoints(obj: Json, now: float) -> list[Any]:
    subsets = elements(obj, "subsets")
    told = some((each for subset in subsets for each in _subset(subset)), _LISTED, empty="") if subsets else NONE
    return [name(obj), told, age(obj, now)]


def _subset(subset: Json) -> Iterator[str]:
    hosts = [text(each, "ip") for each in elements(subset, "addresses")]
    ports = elements(subset, "ports")
    if not ports:  # a headless service may have none
        yield from hosts
    for port in ports:
        for host in hosts:
            yield f"[{host}]:{number(port, 'port')}" if ":" in host else f"{host}:{number(port, 'port')}"


def endpoint_slice(obj: Json, now: float) -> list[Any]:
    ports = (shown(each, "port") or text(each, "name", "*") for each in elements(obj, "ports"))
    hosts = (host for each in elements(obj, "endpoints") for host in strings(each, "addresses"))
    return [
        name(obj),
        text(obj, "addressType"),
        some(ports, _LISTED, empty=UNSET),
        some(hosts, _LISTED, empty=UNSET),
        age(obj, now),
    ]


def ingress(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name(obj),
        text(spec, "ingressClassName", NONE),
        _hosts(spec),
        ",".join(_balancers(part(obj, "status"))),
        "80, 443" if count(spec, "tls") else "80",
        age(obj, now),
    ]


def _hosts(spec: Json) -> str:
    """The first hosts; what is said to be more counts rules, with a host or without."""
    rules = elements(spec, "rules")
    named = [(index, host) for index, each in enumerate(rules) if (host := text(each, "host"))][:_LISTED]
    told = ",".join(host for _, host in named) or "*"
    cut = len(named) == _LISTED and named[-1][0] + 1 < len(rules)
    return f"{told} + {len(rules) - _LISTED} more..." if cut else told


def ingress_class(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    parameters = part(spec, "parameters")
    kind = ".".join(filter(None, (text(parameters, "kind"), text(parameters, "apiGroup"))))
    told = f"{kind}/{text(parameters, 'name')}" if parameters else NONE
    return [name(obj), text(spec, "controller"), told, age(obj, now)]


def network_policy(obj: Json, now: float) -> list[Any]:
    return [name(obj), selector(part(obj, "spec"), "podSelector"), age(obj, now)]


def service_cidr(obj: Json, now: float) -> list[Any]:
    return [name(obj), ",".join(strings(part(obj, "spec"), "cidrs")), age(obj, now)]


def ip_address(obj: Json, _now: float) -> list[Any]:
    parent = part(obj, "spec", "parentRef")
    resource = ".".join(filter(None, (text(parent, "resource"), text(parent, "group")))).lower()
    place = filter(None, (text(parent, "namespace"), text(parent, "name")))
    return [name(obj), "/".join((resource, *place)) if parent else NONE]


ROWS: Rows = {
    ("", "endpoints"): endpoints,
    ("", "services"): service,
    ("discovery.k8s.io", "endpointslices"): endpoint_slice,
    ("networking.k8s.io", "ingressclasses"): ingress_class,
    ("networking.k8s.io", "ingresses"): ingress,
    ("networking.k8s.io", "ipaddresses"): ip_address,
    ("networking.k8s.io", "networkpolicies"): network_policy,
    ("networking.k8s.io", "servicecidrs"): service_cidr,
}
