"""LimitRange: amounts for containers, pods and claims that fit together."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.field_checks import Errors, Object, named
from podwire.kinds.podspec.resource_defaults import round_up
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.objects import names, quantity
from podwire.objects.quantity import Quantity
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid, required

_ORDERED = (
    ("min", "max", "min", "min value {low} is greater than max value {high}"),
    ("min", "defaultRequest", "defaultRequest", "min value {low} is greater than default request value {high}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {low} is greater than max value {high}"),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "default request value {low} is greater than default limit value {high}",
    ),
    ("min", "default", "default", "min value {low} is greater than default value {high}"),
    ("default", "max", "default", "default value {low} is greater than max value {high}"),
)
"""Pairs of amounts of which the first may not exceed the second, with the field and text of the error."""


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    seen: set[str] = set()
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", item.get("type", "")
        named(names.qualified_name, kind, f"{path}.type", errors)
        if kind in seen:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        _item(item, kind, path, errors)
    return errors


def _item(item: Object, kind: str, path: str, errors: Errors) -> None:
    if kind == "Pod":
        for field in ("default", "defaultRequest"):
            if item.get(field):
                errors.append(forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'"))
    storage = "storage" in (item.get("min") or {}) or "storage" in (item.get("max") or {})
    if kind == "PersistentVolumeClaim" and not storage:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(f"{path}.limits", detail))
    for low_field, high_field, shown_field, sentence in _ORDERED:
        lows, highs = _amounts(item, low_field), _amounts(item, high_field)
        for name in sorted(lows.keys() & highs.keys()):
            if lows[name] > highs[name]:
                shown = (item.get(shown_field) or {}).get(name, "")
                detail = sentence.format(low=lows[name], high=highs[name])
                errors.append(invalid(f"{path}.{shown_field}[{name}]", shown, detail))
    for name, ratio in _amounts(item, "maxLimitRequestRatio").items():
        if ratio < Quantity(quantity.NANO):
            place = f"{path}.maxLimitRequestRatio[{name}]"
            errors.append(invalid(place, ratio.canonical(), f"ratio {ratio} is less than 1"))


def _amounts(item: Object, field: str) -> Mapping[str, Quantity]:
    return {name: quantity.parse(amount) for name, amount in (item.get(field) or {}).items()}


def default(obj: dict[str, Any]) -> None:
    for item in obj["spec"].get("limits") or ():
        if item.get("type") == "Container":
            # The default limit is the maximum; the default request is that limit, else the minimum
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            if limits:
                item["default"] = limits
            if requests:
                item["defaultRequest"] = requests
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            round_up(item.get(name))


LIMIT_RANGE = Strategy(
    group="",
    kind="LimitRange",
    parts={"spec": {}},
    default=default,
    allow_create_on_update=True,
    validate_create=validate_create,
    validate_update=as_on_create(validate_create),
)
