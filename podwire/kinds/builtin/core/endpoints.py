"""Endpoints: the addresses that a Service's traffic may go to."""

from collections.abc import Iterator, Sequence
from typing import Any

from podwire.kinds.builtin.core.service.validate import PROTOCOLS
from podwire.kinds.field_checks import Errors, Object, endpoint_ip, named, port_number
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import (
    NONE,
    Json,
    age_of,
    elements,
    first_few,
    name_of,
    number,
    text,
)
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, required

SHOWN = 3
"""More endpoints and ports than these are only counted."""


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    for index, subset in enumerate(obj.get("subsets") or ()):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for field in ("addresses", "notReadyAddresses"):
            for place, address in enumerate(subset.get(field) or ()):
                _address(address, f"{path}.{field}[{place}]", errors)
        _ports(subset.get("ports") or (), f"{path}.ports", errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return [] if new.get("subsets") == old.get("subsets") else validate_create(new)


def _address(address: Object, path: str, errors: Errors) -> None:
    endpoint_ip(address.get("ip", ""), f"{path}.ip", errors)
    if hostname := address.get("hostname"):
        named(names.dns_label, hostname, f"{path}.hostname", errors)
    if (node := address.get("nodeName")) is not None:
        named(names.dns_subdomain, node, f"{path}.nodeName", errors)


def _ports(ports: Sequence[Object], path: str, errors: Errors) -> None:
    for index, port in enumerate(ports):
        place = f"{path}[{index}]"
        if name := port.get("name"):
            named(names.dns_label, name, f"{place}.name", errors)
        elif len(ports) > 1:
            errors.append(required(f"{place}.name"))
        port_number(port.get("port", 0), f"{place}.port", errors)
        PROTOCOLS.require(port.get("protocol"), f"{place}.protocol", errors)


def default(obj: dict[str, Any]) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def row(obj: Json, now: float) -> list[Any]:
    subsets = elements(obj, "subsets")
    listed = (
        first_few((address for subset in subsets for address in _subset(subset)), SHOWN, empty="") if subsets else NONE
    )
    return [name_of(obj), listed, age_of(obj, now)]


def _subset(subset: Json) -> Iterator[str]:
    hosts = [text(address, "ip") for address in elements(subset, "addresses")]
    ports = elements(subset, "ports")
    if not ports:  # a headless service may have none
        yield from hosts
    for port in ports:
        for host in hosts:
            yield f"[{host}]:{number(port, 'port')}" if ":" in host else f"{host}:{number(port, 'port')}"


ENDPOINTS = Strategy(
    group="",
    kind="Endpoints",
    deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    stored_as="services/endpoints",
    default=default,
    allow_create_on_update=True,
    validate_create=validate_create,
    validate_update=validate_update,
    columns="Name|Endpoints|Age",
    row=row,
)
