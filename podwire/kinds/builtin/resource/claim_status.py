"""The status of a ResourceClaim: allocation, consumers, and device status of drivers."""

import ipaddress
import uuid
from collections.abc import Callable

from podwire.kinds import field_checks as common
from podwire.kinds.builtin.resource.device_checks import (
    MOST_CONFIGS,
    binding_conditions,
    configuration,
    distinct,
    driver,
    items,
    label,
    pool,
    raw,
    toleration,
)
from podwire.kinds.field_checks import Choice, Errors, Object, unchanged
from podwire.kinds.podspec.affinity_rules import node_selector
from podwire.protocols.k8sapi.status import forbidden, invalid, required, too_long, too_many

MOST_CONSUMERS = 256
MOST_RESULTS = 32
MOST_TOLERATIONS = 16
MOST_IPS = 16
MOST_DEVICE_CONDITIONS = 8
DATA_LENGTH = 10 * 1024
INTERFACE_LENGTH = 256
HARDWARE_LENGTH = 128

_SOURCES = Choice(("FromClaim", "FromClass"))

Reference = Callable[[str, str, Errors], None]
"""Checks that a name is one of the claim's requests."""


def changes(new: Object, old: Object, reference: Reference, errors: Errors) -> None:
    status, before = new.get("status") or {}, old.get("status") or {}
    allocation = status.get("allocation")
    deleting = bool((new.get("metadata") or {}).get("deletionTimestamp"))
    path, consumers = "status.reservedFor", status.get("reservedFor") or ()
    distinct(consumers, MOST_CONSUMERS, _consumer, lambda each: each.get("uid"), path, errors)
    if consumers and status.get("allocation") is None:
        errors.append(forbidden(path, "may not be specified when `allocated` is not set"))
    elif deleting and any(consumer not in (before.get("reservedFor") or ()) for consumer in consumers):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        errors.append(forbidden(path, detail))
    if status.get("devices"):
        _devices(status, errors)
    if allocation is None:
        return
    if before.get("allocation") is not None:
        unchanged(allocation, before["allocation"], "status.allocation", errors)
    else:
        _allocation(allocation, reference, errors)


def _consumer(consumer: Object, path: str, errors: Errors) -> None:
    errors += [required(f"{path}.{field}") for field in ("resource", "name", "uid") if not consumer.get(field)]


def _allocation(allocation: Object, reference: Reference, errors: Errors) -> None:
    path = "status.allocation"
    devices = allocation.get("devices") or {}

    def result(given: Object, place: str, item_errors: Errors) -> None:
        reference(given.get("request", ""), f"{place}.request", item_errors)
        _identity(given, place, item_errors)
        binding_conditions(given, place, item_errors)
        items(given.get("tolerations") or (), MOST_TOLERATIONS, toleration, f"{place}.tolerations", item_errors)

    def config(given: Object, place: str, item_errors: Errors) -> None:
        _SOURCES.require(given.get("source"), f"{place}.source", item_errors)
        distinct(given.get("requests") or (), MOST_RESULTS, reference, str, f"{place}.requests", item_errors)
        configuration(given, place, item_errors)

    items(devices.get("results") or (), MOST_RESULTS, result, f"{path}.devices.results", errors)
    items(devices.get("config") or (), 2 * MOST_CONFIGS, config, f"{path}.devices.config", errors)
    if (selector := allocation.get("nodeSelector")) is not None:
        node_selector(selector, f"{path}.nodeSelector", errors)


def _identity(given: Object, path: str, errors: Errors) -> None:
    driver(given.get("driver", ""), f"{path}.driver", errors)
    pool(given.get("pool", ""), f"{path}.pool", errors)
    label(given.get("device", ""), f"{path}.device", errors)
    if (share := given.get("shareID")) is not None:
        _share(share, f"{path}.shareID", errors)


def _share(text: str, path: str, errors: Errors) -> None:
    try:
        canonical = str(uuid.UUID(text))
    except ValueError:
        errors.append(invalid(path, text, f"error validating uid: invalid UUID length: {len(text)}"))
        return
    if canonical != text:
        form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
        errors.append(invalid(path, text, f"uid must be in RFC 4122 normalized form, {form}"))


def _key(device: Object) -> tuple[str, ...]:
    return tuple(device.get(field) or "" for field in ("driver", "pool", "device", "shareID"))


def _devices(status: Object, errors: Errors) -> None:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    allocated = {_key(result) for result in results}

    def device(given: Object, path: str, item_errors: Errors) -> None:
        _identity(given, path, item_errors)
        if _key(given) not in allocated:
            shown = "/".join(part for part in _key(given) if part)
            item_errors.append(invalid(path, shown, "must be an allocated device in the claim"))
        if len(conditions := given.get("conditions") or ()) > MOST_DEVICE_CONDITIONS:
            item_errors.append(too_many(f"{path}.conditions", len(conditions), MOST_DEVICE_CONDITIONS))
        common.conditions(conditions, f"{path}.conditions", item_errors)
        if (data := given.get("data")) is not None:
            raw(data, DATA_LENGTH, f"{path}.data", item_errors)
        if (network := given.get("networkData")) is not None:
            _network(network, f"{path}.networkData", item_errors)

    devices = status["devices"]
    distinct(devices, len(devices), device, _key, "status.devices", errors)


def _network(data: Object, path: str, errors: Errors) -> None:
    for field, limit in (("interfaceName", INTERFACE_LENGTH), ("hardwareAddress", HARDWARE_LENGTH)):
        if len((data.get(field) or "").encode()) > limit:
            errors.append(too_long(f"{path}.{field}", limit))
    distinct(data.get("ips") or (), MOST_IPS, _interface_address, str, f"{path}.ips", errors)


def _interface_address(text: str, path: str, errors: Errors) -> None:
    """A host's own address with the length of its network, in the one form that addresses have."""
    try:
        canonical = str(ipaddress.ip_interface(text))
    except ValueError:
        canonical = ""
    if not canonical or "/" not in text:
        detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        errors.append(invalid(path, text, detail))
    elif text != canonical:
        errors.append(invalid(path, text, f'must be in canonical form ("{canonical}")'))
