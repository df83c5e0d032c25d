"""ServiceCIDR and IPAddress: ranges of cluster addresses, and the addresses that are in use."""

import ipaddress
from typing import Any

from podwire.kinds.field_checks import Errors, Object, named
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import NONE, Json, age_of, name_of, part, strings, text
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid, required

MOST_CIDRS = 2
IMMUTABLE = "field is immutable"


def service_cidr_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), ",".join(strings(part(obj, "spec"), "cidrs")), age_of(obj, now)]


def validate_service_cidr(obj: Object) -> list[FieldError]:
    spec = obj.get("spec") or {}
    cidrs = spec.get("cidrs") or []
    if not cidrs:
        return [required("spec.cidrs", "at least one CIDR required")]
    if len(cidrs) > MOST_CIDRS:
        return [invalid("spec.cidrs", spec, "may only hold up to 2 values")]
    errors: Errors = []
    for index, cidr in enumerate(cidrs):
        named(names.cidr, cidr, f"spec.cidrs[{index}]", errors)
    if not errors and len({ipaddress.ip_network(cidr).version for cidr in cidrs}) < len(cidrs):
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        errors.append(invalid("spec.cidrs", cidrs, detail))
    return errors


def validate_service_cidr_update(new: Object, old: Object) -> list[FieldError]:
    """Checks a change: a range may get one of the other family; nothing else changes."""
    before, now = ((obj.get("spec") or {}).get("cidrs") or [] for obj in (old, new))
    if len(before) == len(now):
        return [
            invalid(f"spec.cidrs[{index}]", cidr, IMMUTABLE)
            for index, (cidr, known) in enumerate(zip(now, before, strict=True))
            if cidr != known
        ]
    if (len(before), len(now)) != (1, MOST_CIDRS):
        return [invalid("spec.cidrs", now, IMMUTABLE)]
    changed = [invalid("spec.cidrs[0]", now[0], IMMUTABLE)] if now[0] != before[0] else []
    return [*changed, *validate_service_cidr(new)]


SERVICE_CIDR = Strategy(
    group="networking.k8s.io",
    kind="ServiceCIDR",
    parts={"spec": {}, "status": {}},
    validate_create=validate_service_cidr,
    validate_update=validate_service_cidr_update,
    columns="Name|CIDRs|Age",
    row=service_cidr_row,
)


def ip_address_row(obj: Json, _now: float) -> list[Any]:
    parent = part(obj, "spec", "parentRef")
    resource = ".".join(filter(None, (text(parent, "resource"), text(parent, "group")))).lower()
    place = filter(None, (text(parent, "namespace"), text(parent, "name")))
    return [name_of(obj), "/".join((resource, *place)) if parent else NONE]


def validate_ip_address(obj: Object) -> list[FieldError]:
    parent = (obj.get("spec") or {}).get("parentRef")
    if parent is None:
        return [required("spec.parentRef")]
    errors: Errors = []
    if parent.get("group"):
        named(names.dns_subdomain, parent["group"], "spec.parentRef.group", errors)
    for field in ("resource", "name"):
        if not parent.get(field):
            errors.append(required(f"spec.parentRef.{field}"))
        else:
            named(names.path_segment, parent[field], f"spec.parentRef.{field}", errors)
    if parent.get("namespace"):
        named(names.path_segment, parent["namespace"], "spec.parentRef.namespace", errors)
    return errors


def validate_ip_address_update(new: Object, old: Object) -> list[FieldError]:
    before, now = ((obj.get("spec") or {}).get("parentRef") for obj in (old, new))
    return [] if before == now else [invalid("spec.parentRef", now, IMMUTABLE)]


IP_ADDRESS = Strategy(
    group="networking.k8s.io",
    kind="IPAddress",
    check_name=names.canonical_ip,
    parts={"spec": {}},
    validate_create=validate_ip_address,
    validate_update=validate_ip_address_update,
    columns="Name|ParentRef",
    row=ip_address_row,
)
