"""Endpoints and EndpointSlice: the addresses that a Service's traffic may go to."""

from collections.abc import Iterator, Sequence
from typing import Any

from podwire.kinds.field_checks import Choice, Errors, Object, endpoint_ip, named, port_number, unchanged
from podwire.kinds.service.validate import PROTOCOLS
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import (
    NONE,
    UNSET,
    Json,
    age_of,
    elements,
    first_few,
    name_of,
    number,
    shown,
    strings,
    text,
)
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, invalid, required, too_many

MOST_ENDPOINTS = 1000
MOST_ADDRESSES = 100
MOST_PORTS = 20000
_LISTED = 3
"""More endpoints and ports than these are only counted."""
_ADDRESS_TYPES = Choice(("FQDN", "IPv4", "IPv6"))


def validate_endpoints(obj: Object) -> list[FieldError]:
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


def validate_endpoints_update(new: Object, old: Object) -> list[FieldError]:
    return [] if new.get("subsets") == old.get("subsets") else validate_endpoints(new)


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


def validate_slice(obj: Object) -> list[FieldError]:
    errors: Errors = []
    kind = obj.get("addressType", "")
    _ADDRESS_TYPES.require(kind, "addressType", errors)
    endpoints = obj.get("endpoints") or ()
    if len(endpoints) > MOST_ENDPOINTS:
        errors.append(too_many("endpoints", len(endpoints), MOST_ENDPOINTS))
        return errors
    for index, endpoint in enumerate(endpoints):
        _slice_endpoint(endpoint, kind, f"endpoints[{index}]", errors)
    _slice_ports(obj.get("ports") or (), errors)
    return errors


def validate_slice_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    unchanged(new.get("addressType"), old.get("addressType"), "addressType", errors)
    return errors + validate_slice(new)


def _slice_endpoint(endpoint: Object, kind: str, path: str, errors: Errors) -> None:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > MOST_ADDRESSES:
        errors.append(too_many(f"{path}.addresses", len(addresses), MOST_ADDRESSES))
    for index, address in enumerate(addresses):
        place = f"{path}.addresses[{index}]"
        if kind == "FQDN":
            named(names.dns_subdomain, address.removesuffix("."), place, errors)
        elif kind in ("IPv4", "IPv6"):
            endpoint_ip(address, place, errors)
            if names.is_ip(address) and (":" in address) is not (kind == "IPv6"):
                errors.append(invalid(place, address, f"must be an {kind} address"))
    if (node := endpoint.get("nodeName")) is not None:
        named(names.dns_subdomain, node, f"{path}.nodeName", errors)
    if (hostname := endpoint.get("hostname")) is not None:
        named(names.dns_label, hostname, f"{path}.hostname", errors)


def _slice_ports(ports: Sequence[Object], errors: Errors) -> None:
    if len(ports) > MOST_PORTS:
        errors.append(too_many("ports", len(ports), MOST_PORTS))
        return
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port.get("name") or ""
        if name:
            named(names.dns_label, name, f"{path}.name", errors)
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        PROTOCOLS.require(port.get("protocol"), f"{path}.protocol", errors)
        if (number := port.get("port")) is not None:
            port_number(number, f"{path}.port", errors)


def default_endpoints(obj: dict[str, Any]) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def default_slice(obj: dict[str, Any]) -> None:
    for endpoint in obj.get("endpoints") or ():
        endpoint.setdefault("conditions", {})
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def endpoints_row(obj: Json, now: float) -> list[Any]:
    subsets = elements(obj, "subsets")
    listed = (
        first_few((address for subset in subsets for address in _subset(subset)), _LISTED, empty="")
        if subsets
        else NONE
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


def slice_row(obj: Json, now: float) -> list[Any]:
    ports = (shown(port, "port") or text(port, "name", "*") for port in elements(obj, "ports"))
    hosts = (host for endpoint in elements(obj, "endpoints") for host in strings(endpoint, "addresses"))
    return [
        name_of(obj),
        text(obj, "addressType"),
        first_few(ports, _LISTED, empty=UNSET),
        first_few(hosts, _LISTED, empty=UNSET),
        age_of(obj, now),
    ]


ENDPOINTS = Strategy(
    group="",
    kind="Endpoints",
    stored_as="services/endpoints",
    default=default_endpoints,
    allow_create_on_update=True,
    validate_create=validate_endpoints,
    validate_update=validate_endpoints_update,
    columns="Name|Endpoints|Age",
    row=endpoints_row,
)

ENDPOINT_SLICE = Strategy(
    group="discovery.k8s.io",
    kind="EndpointSlice",
    default=default_slice,
    counts_generation=True,
    validate_create=validate_slice,
    validate_update=validate_slice_update,
    columns="Name|AddressType|Ports|Endpoints|Age",
    row=slice_row,
)
