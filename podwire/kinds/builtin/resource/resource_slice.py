"""ResourceSlice: the devices that a driver publishes, and the nodes that can reach them."""

import re
from collections.abc import Callable
from typing import Any

from podwire.kinds.builtin.resource import capacity_checks
from podwire.kinds.builtin.resource.device_checks import (
    binding_conditions,
    distinct,
    driver,
    items,
    label,
    pool,
    qualified,
    taint,
)
from podwire.kinds.builtin.resource.device_taint_rule import date_taint
from podwire.kinds.builtin.resource.versions import conversions
from podwire.kinds.field_checks import Errors, Object, named, unchanged
from podwire.kinds.podspec.affinity_rules import node_selector
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import Json, age_of, name_of, part, text
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid, required, too_long, too_many

MOST_DEVICES = 128
MOST_ADVANCED_DEVICES = 64
MOST_PROPERTIES = 32
MOST_VALUES = 48
MOST_TAINTS = 16
MOST_COUNTER_SETS = 8
MOST_COUNTERS = 32
MOST_CONSUMPTIONS = 2
VALUE_LENGTH = 64
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_DEVICE_PLACES = ("nodeName", "nodeSelector", "allNodes")
_VALUES = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    _slice(obj.get("spec") or {}, errors)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return errors
    _slice(spec, errors)
    was = (before.get("pool") or {}).get("name")
    unchanged((spec.get("pool") or {}).get("name"), was, "spec.pool.name", errors)
    unchanged(spec.get("driver"), before.get("driver"), "spec.driver", errors)
    unchanged(spec.get("nodeName"), before.get("nodeName"), "spec.nodeName", errors)
    return errors


def _slice(spec: Object, errors: Errors) -> None:
    driver(spec.get("driver", ""), "spec.driver", errors)
    _pool(spec.get("pool") or {}, errors)
    _places(spec, errors)
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        errors.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    per_device = bool(spec.get("perDeviceNodeSelection"))

    def device(given: Object, path: str, item_errors: Errors) -> None:
        _device(given, path, item_errors, per_device=per_device)

    advanced = any(_is_advanced(candidate) for candidate in devices or ())
    most = MOST_ADVANCED_DEVICES if advanced else MOST_DEVICES
    distinct(devices or (), most, device, _name, "spec.devices", errors)
    distinct(counters or (), MOST_COUNTER_SETS, _counter_set, _name, "spec.sharedCounters", errors)


def _name(given: Object) -> str:
    return str(given.get("name", ""))


def _pool(given: Object, errors: Errors) -> None:
    pool(given.get("name", ""), "spec.pool.name", errors)
    count, generation = given.get("resourceSliceCount") or 0, given.get("generation") or 0
    if count <= 0:
        errors.append(invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        errors.append(invalid("spec.pool.generation", generation, "must be greater than or equal to zero"))


def _places(spec: Object, errors: Errors) -> None:
    """Checks that exactly one field says which nodes can reach the devices."""
    if (name := spec.get("nodeName")) is not None:
        if name:
            named(names.dns_subdomain, name, "spec.nodeName", errors)
        else:
            detail = "must be either unset or set to a non-empty string"
            errors.append(invalid("spec.nodeName", name, detail))
    if (selector := spec.get("nodeSelector")) is not None:
        node_selector(selector, "spec.nodeSelector", errors)
        if len(terms := selector.get("nodeSelectorTerms") or ()) != 1:
            path = "spec.nodeSelector.nodeSelectorTerms"
            errors.append(invalid(path, terms, "must have exactly one node selector term"))
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field) is False:
            errors.append(invalid(f"spec.{field}", False, "must be either unset or set to true"))
    given = [f"`{field}`" for field in _PLACES if spec.get(field) or (field == "nodeSelector" and field in spec)]
    one_of = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not given:
        errors.append(required("spec", one_of))
    elif len(given) > 1:
        shown = "{" + ", ".join(given) + "}"
        errors.append(invalid("spec", shown, f"{one_of}, but multiple fields are set"))


def _is_advanced(device: Object) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(field in value for value in (device.get("attributes") or {}).values() for field in _VALUES[4:])


def _device(device: Object, path: str, errors: Errors, *, per_device: bool) -> None:
    label(_name(device), f"{path}.name", errors)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (count := len(attributes) + len(capacity)) > MOST_PROPERTIES:
        detail = f"the total number of attributes and capacities must not exceed {MOST_PROPERTIES}"
        errors.append(invalid(path, count, detail))
    if (count := sum(_entries(values) for values in attributes.values())) > MOST_VALUES:
        errors.append(invalid(path, count, f"the total number of attribute values must not exceed {MOST_VALUES}"))
    for name, attribute in attributes.items():
        qualified(name, f"{path}.attributes", errors)
        _attribute(attribute, f"{path}.attributes[{name}]", errors)
    for name, amount in capacity.items():
        qualified(name, f"{path}.capacity", errors)
        shared = bool(device.get("allowMultipleAllocations"))
        capacity_checks.capacity(amount, f"{path}.capacity[{name}]", errors, shared=shared)
    items(device.get("taints") or (), MOST_TAINTS, taint, f"{path}.taints", errors)
    consumed = device.get("consumesCounters") or ()
    distinct(consumed, MOST_CONSUMPTIONS, _consumption, _counter_set_name, f"{path}.consumesCounters", errors)
    _device_places(device, path, errors, per_device=per_device)
    binding_conditions(device, path, errors)


def _device_places(device: Object, path: str, errors: Errors, *, per_device: bool) -> None:
    if not per_device:
        if any(device.get(field) is not None for field in _DEVICE_PLACES):
            detail = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set "
                "if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            )
            errors.append(invalid(path, None, detail))
        return
    given = [field for field in _DEVICE_PLACES if _is_place(device, field, path, errors)]
    detail = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required "
        "when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    )
    if not given:
        errors.append(required(path, detail))
    elif len(given) > 1:
        shown = "{" + ", ".join(f"`{field}`" for field in given) + "}"
        errors.append(invalid(path, shown, detail))


def _is_place(device: Object, field: str, path: str, errors: Errors) -> bool:
    """Returns whether a device names its nodes by this field; reports a field that is set but empty."""
    given, place = device.get(field), f"{path}.{field}"
    if given is None:
        return False
    if field == "nodeSelector":
        node_selector(given, place, errors)
    elif given and field == "nodeName":
        named(names.dns_subdomain, given, place, errors)
    elif not given:
        empty = field == "nodeName"
        errors.append(invalid(place, given, "must not be empty" if empty else "must be either unset or set to true"))
        return False
    return True


def _entries(attribute: Object) -> int:
    return sum(len(value) if isinstance(value, list) else 1 for value in attribute.values())


def _attribute(attribute: Object, path: str, errors: Errors) -> None:
    given = [field for field in _VALUES if attribute.get(field) is not None]
    for field in given:
        value = attribute[field]
        if isinstance(value, list):
            if not value:
                errors.append(invalid(f"{path}.{field}", value, "must not be empty if specified"))
            for index, element in enumerate(value):
                _value(element, field.removesuffix("s"), f"{path}.{field}[{index}]", errors)
        else:
            _value(value, field, f"{path}.{field}", errors)
    if len(given) != 1:
        errors.append(invalid(path, attribute if given else "", "exactly one value must be specified"))


def _value(value: object, kind: str, path: str, errors: Errors) -> None:
    if not isinstance(value, str):
        return
    if kind == "version" and not _SEMVER.fullmatch(value):
        errors.append(invalid(path, value, "must be a string compatible with semver.org spec 2.0.0"))
    if len(value.encode()) > VALUE_LENGTH:
        errors.append(too_long(path, VALUE_LENGTH))


def _counter_set(given: Object, path: str, errors: Errors) -> None:
    _counters(given, "name", path, errors)


def _consumption(given: Object, path: str, errors: Errors) -> None:
    _counters(given, "counterSet", path, errors)


def _counter_set_name(given: Object) -> str:
    return str(given.get("counterSet", ""))


def _counters(given: Object, name_field: str, path: str, errors: Errors) -> None:
    if name := given.get(name_field):
        label(name, f"{path}.{name_field}", errors)
    else:
        errors.append(required(f"{path}.{name_field}"))
    counters = given.get("counters") or {}
    if not counters:
        errors.append(required(f"{path}.counters"))
    elif len(counters) > MOST_COUNTERS:
        errors.append(too_many(f"{path}.counters", len(counters), MOST_COUNTERS))
    else:
        for name in counters:
            label(name, f"{path}.counters", errors)


def default_times(obj: dict[str, Any], now: Callable[[], float]) -> None:
    for device in obj["spec"].get("devices") or ():
        for given in device.get("taints") or ():
            date_taint(given, now)


def row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        text(spec, "nodeName"),
        text(spec, "driver"),
        text(part(spec, "pool"), "name"),
        age_of(obj, now),
    ]


RESOURCE_SLICE = Strategy(
    group="resource.k8s.io",
    kind="ResourceSlice",
    conversions=conversions("ResourceSlice"),
    parts={"spec": {"pool": {}}},
    default_times=default_times,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    returns_deleted=True,
    selectable=(selectable("spec.nodeName"), selectable("spec.driver"), selectable("spec.pool.name")),
    columns="Name|Node|Driver|Pool|Age",
    row=row,
)
