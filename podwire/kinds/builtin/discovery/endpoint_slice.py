"""EndpointSlice: a part of the addresses that a Service's traffic may go to."""

from collections.abc import Sequence
from typing import Any

from podwire.kinds.builtin.core.endpoints import SHOWN
from podwire.kinds.builtin.core.service.validate import PROTOCOLS
from podwire.kinds.field_checks import Choice, Errors, Object, endpoint_ip, named, port_number, unchanged
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import (
    UNSET,
    Json,
    age_of,
    elements,
    first_few,
    name_of,
    shown,
    strings,
    text,
)
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, invalid, required, too_many

MOST_ENDPOINTS = 1000
MOST_ADDRESSES = 100
MOST_PORTS = 20000
_ADDRESS_TYPES = Choice(("FQDN", "IPv4", "IPv6"))


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    kind = obj.get("addressType", "")
    _ADDRESS_TYPES.require(kind, "addressType", errors)
    endpoints = obj.get("endpoints") or ()
    if len(endpoints) > MOST_ENDPOINTS:
        errors.append(too_many("endpoints", len(endpoints), MOST_ENDPOINTS))
        return errors
    for index, endpoint in enumerate(endpoints):
        _endpoint(endpoint, kind, f"endpoints[{index}]", errors)
    _ports(obj.get("ports") or (), errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    unchanged(new.get("addressType"), old.get("addressType"), "addressType", errors)
    return errors + validate_create(new)


def _endpoint(endpoint: Object, kind: str, path: str, errors: Errors) -> None:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > MOST_ADDRESSES:
        errors.append(too_many(f"{path}.addresses", len(addresses), MOST_ADDRESSES))
    for index, address in enumerate(addresses):
        place = f"{path}.addresses[{index}]"
        if kind == "FQDN":
            named(names.dns_subdomain, address.removesuffix("."), place, errors)
        elif kind == "IPv6" and (problems := names.canonical_ip(address)):
            errors += [invalid(place, address, problem) for problem in problems]
        elif kind in ("IPv4", "IPv6"):
            if names.is_ip(address) and (":" in address) is not (kind == "IPv6"):
                errors.append(invalid(f"{path}.addresses", address, f"must be an {kind} address"))
            endpoint_ip(address, place, errors)
    if (node := endpoint.get("nodeName")) is not None:
        named(names.dns_subdomain, node, f"{path}.nodeName", errors)
    if (hostname := endpoint.get("hostname")) is not None:
        named(names.dns_label, hostname, f"{path}.hostname", errors)


def _ports(ports: Sequence[Object], errors: Errors) -> None:
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


def default(obj: dict[str, Any]) -> None:
    for endpoint in obj.get("endpoints") or ():
        endpoint.setdefault("conditions", {})
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def row(obj: Json, now: float) -> list[Any]:
    ports = (shown(port, "port") or text(port, "name", "*") for port in elements(obj, "ports"))
    hosts = (host for endpoint in elements(obj, "endpoints") for host in strings(endpoint, "addresses"))
    return [
        name_of(obj),
        text(obj, "addressType"),
        first_few(ports, SHOWN, empty=UNSET),
        first_few(hosts, SHOWN, empty=UNSET),
        age_of(obj, now),
    ]


def slice_warnings(new: Object, old: Object | None) -> list[str]:
    fqdn = old is None and new.get("addressType") == "FQDN"
    return ["spec.addressType: FQDN endpoints are deprecated"] if fqdn else []


ENDPOINT_SLICE = Strategy(
    group="discovery.k8s.io",
    kind="EndpointSlice",
    default=default,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=slice_warnings,
    columns="Name|AddressType|Ports|Endpoints|Age",
    row=row,
)
