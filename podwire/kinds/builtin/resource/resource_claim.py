"""ResourceClaim and ResourceClaimTemplate: the requested devices."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.builtin.resource import claim_status
from podwire.kinds.builtin.resource.device_checks import (
    MOST_CONFIGS,
    MOST_SELECTORS,
    configuration,
    distinct,
    fully_qualified,
    items,
    label,
    selector,
    toleration,
)
from podwire.kinds.builtin.resource.versions import GROUP, conversions
from podwire.kinds.field_checks import Choice, Errors, Object, labels, named, unchanged
from podwire.kinds.object_meta import annotations
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, age_of, count, is_deleted, name_of, named_row, part
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid, required

MOST_REQUESTS = 32
MOST_CONSTRAINTS = 32
MOST_ALTERNATIVES = 8
MOST_TOLERATIONS = 16
_MODES = Choice(("All", "ExactCount"))
_ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"
_ONE_ATTRIBUTE = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
Requests = Mapping[str, frozenset[str]]
"""The names of a claim's requests, each with those of its alternatives."""


def validate_claim(obj: Object) -> list[FieldError]:
    errors: Errors = []
    _devices((obj.get("spec") or {}).get("devices") or {}, "spec.devices", errors)
    return errors


def validate_claim_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    unchanged(new.get("spec"), old.get("spec"), "spec", errors)
    return errors


def validate_claim_status(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    requests = _request_names((new.get("spec") or {}).get("devices") or {})
    claim_status.changes(
        new, old, lambda name, path, item_errors: request_reference(name, requests, path, item_errors), errors
    )
    return errors


def validate_template(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    metadata = spec.get("metadata") or {}
    labels(metadata.get("labels") or {}, "spec.metadata.labels", errors)
    annotations(metadata.get("annotations") or {}, "spec.metadata.annotations", errors)
    _devices((spec.get("spec") or {}).get("devices") or {}, "spec.spec.devices", errors)
    return errors


def _devices(devices: Object, path: str, errors: Errors) -> None:
    requests = _request_names(devices)

    def constraint(given: Object, place: str, item_errors: Errors) -> None:
        _references(given, requests, place, item_errors)
        if (attribute := given.get("matchAttribute")) is not None:
            fully_qualified(attribute, f"{place}.matchAttribute", item_errors)
        elif (attribute := given.get("distinctAttribute")) is not None:
            fully_qualified(attribute, f"{place}.distinctAttribute", item_errors)
        else:
            item_errors.append(required(place, _ONE_ATTRIBUTE))

    def config(given: Object, place: str, item_errors: Errors) -> None:
        _references(given, requests, place, item_errors)
        configuration(given, place, item_errors)

    given = devices.get("requests") or ()
    distinct(given, MOST_REQUESTS, _request, _name, f"{path}.requests", errors)
    items(devices.get("constraints") or (), MOST_CONSTRAINTS, constraint, f"{path}.constraints", errors)
    items(devices.get("config") or (), MOST_CONFIGS, config, f"{path}.config", errors)


def _name(given: Object) -> str:
    return str(given.get("name", ""))


def _request_names(devices: Object) -> Requests:
    return {
        _name(request): frozenset(_name(other) for other in request.get("firstAvailable") or ())
        for request in devices.get("requests") or ()
    }


def _references(given: Object, requests: Requests, path: str, errors: Errors) -> None:
    def reference(name: str, place: str, item_errors: Errors) -> None:
        request_reference(name, requests, place, item_errors)

    distinct(given.get("requests") or (), MOST_REQUESTS, reference, str, f"{path}.requests", errors)


def request_reference(name: str, requests: Requests, path: str, errors: Errors) -> None:
    """A request of the claim, or one of its alternatives: `request[/alternative]`."""
    detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    parts = name.split("/")
    if len(parts) > 2:
        errors.append(invalid(path, name, detail))
        return
    for word in parts:
        label(word, path, errors)
    known = parts[0] in requests and (len(parts) == 1 or parts[1] in requests[parts[0]])
    if not known:
        errors.append(invalid(path, name, detail))


def _request(request: Object, path: str, errors: Errors) -> None:
    label(_name(request), f"{path}.name", errors)
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or ()
    if exactly is None and not alternatives:
        errors.append(required(path, _ONE_OF))
    elif exactly is not None and alternatives:
        errors.append(invalid(path, None, f"{_ONE_OF}, but multiple fields are set"))
    elif exactly is not None:
        _exactly(exactly, f"{path}.exactly", errors)
    else:
        distinct(alternatives, MOST_ALTERNATIVES, _alternative, _name, f"{path}.firstAvailable", errors)


def _alternative(request: Object, path: str, errors: Errors) -> None:
    label(_name(request), f"{path}.name", errors)
    _exactly(request, path, errors)


def _exactly(request: Object, path: str, errors: Errors) -> None:
    if name := request.get("deviceClassName"):
        named(names.dns_subdomain, name, f"{path}.deviceClassName", errors)
    else:
        errors.append(required(f"{path}.deviceClassName"))
    items(request.get("selectors") or (), MOST_SELECTORS, selector, f"{path}.selectors", errors)
    mode, count = request.get("allocationMode"), request.get("count") or 0
    _MODES.check(mode, f"{path}.allocationMode", errors)
    if mode == "All" and count:
        errors.append(invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and count <= 0:
        errors.append(invalid(f"{path}.count", count, "must be greater than zero"))
    items(request.get("tolerations") or (), MOST_TOLERATIONS, toleration, f"{path}.tolerations", errors)


def default_claim(obj: dict[str, Any]) -> None:
    _default_claim_spec(obj["spec"])
    allocation = obj["status"].get("allocation")
    if allocation is not None:
        for result in allocation.setdefault("devices", {}).get("results") or ():
            _default_tolerations(result)


def default_template(obj: dict[str, Any]) -> None:
    _default_claim_spec(obj["spec"]["spec"])


def _default_claim_spec(spec: dict[str, Any]) -> None:
    for request in spec["devices"].get("requests") or ():
        if (exactly := request.get("exactly")) is not None:
            _default_request(exactly)
        for alternative in request.get("firstAvailable") or ():
            _default_request(alternative)


def _default_request(request: dict[str, Any]) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    _default_tolerations(request)


def _default_tolerations(part: dict[str, Any]) -> None:
    for given in part.get("tolerations") or ():
        if not given.get("operator"):
            given["operator"] = "Equal"


def claim_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), ",".join(_states(obj)), age_of(obj, now)]


def _states(obj: Json) -> list[str]:
    status = part(obj, "status")
    states = ["deleted"] if is_deleted(obj) else []
    if not isinstance(status.get("allocation"), dict):
        return states or ["pending"]
    states.append("allocated")
    if count(status, "reservedFor"):
        states.append("reserved")
    return states


RESOURCE_CLAIM = Strategy(
    group=GROUP,
    kind="ResourceClaim",
    conversions=conversions("ResourceClaim"),
    parts={"spec": {"devices": {}}, "status": {}},
    default=default_claim,
    validate_create=validate_claim,
    validate_update=validate_claim_update,
    validate_subresources={"status": validate_claim_status},
    returns_deleted=True,
    columns="Name|State|Age",
    row=claim_row,
)

RESOURCE_CLAIM_TEMPLATE = Strategy(
    group=GROUP,
    kind="ResourceClaimTemplate",
    conversions=conversions("ResourceClaimTemplate"),
    parts={"spec": {"metadata": {}, "spec": {"devices": {}}}},
    default=default_template,
    validate_create=validate_template,
    validate_update=validate_claim_update,
    returns_deleted=True,
    columns="Name|Age",
    row=named_row,
)
