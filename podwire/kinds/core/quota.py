"""LimitRange and ResourceQuota: named resources with amounts that fit together."""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.kinds.field_checks import IMMUTABLE, Errors, Object, named
from podwire.kinds.podspec.resource_defaults import round_up
from podwire.kinds.podspec.resource_rules import COUNTED_NAMES
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.kinds.tables import Json, age_of, name_of, part, shown
from podwire.objects import names, quantity
from podwire.objects.quantity import Quantity
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid, required

_MUST_BE_STANDARD = "must be a standard resource for quota"
_STANDARD = frozenset(
    [
        "cpu",
        "memory",
        "storage",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "persistentvolumeclaims",
        "configmaps",
        "services.nodeports",
        "services.loadbalancers",
    ]
)
_SCOPES = frozenset(
    {
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    }
)
_POD_RESOURCES = frozenset({"pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"})
_SCOPE_RESOURCES: Mapping[str, frozenset[str]] = {
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
    **dict.fromkeys(
        ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"), _POD_RESOURCES
    ),
}
"""The resources that a quota with a scope can limit."""
_MUST_BE_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_OPPOSITES = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
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


def validate_limit_range(obj: Object) -> list[FieldError]:
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


def validate_quota(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    for name, amount in (spec.get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        named(names.qualified_name, name, path, errors)
        known = name in _STANDARD or name.startswith(("hugepages-", "requests.hugepages-", "count/"))
        if "/" not in name and not known:
            errors.append(invalid(path, name, _MUST_BE_STANDARD))
        value = quantity.parse(amount)
        if value.nano < 0:
            errors.append(invalid(path, amount, "must be greater than or equal to 0"))
        if (name in COUNTED_NAMES or name.startswith("count/")) and value.nano % quantity.NANO:
            errors.append(invalid(path, amount, "must be an integer"))
    scopes = spec.get("scopes") or ()
    _scopes(scopes, "spec.scopes", "spec.scopes", scopes, spec, errors)
    if (selector := spec.get("scopeSelector")) is not None:
        _scope_selector(selector, spec, errors)
    return errors


def _scopes(names: Sequence[str], path: str, name_path: str, shown: Any, spec: Object, errors: Errors) -> None:
    """Checks that scopes exist, fit the limited resources, and do not exclude each other."""
    standard = sorted(name for name in spec.get("hard") or () if name in _STANDARD)
    for scope in names:
        if scope not in _SCOPES:
            errors.append(invalid(name_path, shown if path == name_path else scope, "unsupported scope"))
        allowed = _SCOPE_RESOURCES.get(scope)
        misfits = [name for name in standard if allowed is not None and name not in allowed]
        errors += [invalid(path, shown, "unsupported scope applied to resource")] * len(misfits)
    for opposite in _OPPOSITES:
        if opposite <= set(names):
            errors.append(invalid(path, spec.get("scopes"), "conflicting scopes"))


def _scope_selector(selector: Object, spec: Object, errors: Errors) -> None:
    path = "spec.scopeSelector.matchExpressions"
    expressions = selector.get("matchExpressions") or ()
    _scopes([item.get("scopeName", "") for item in expressions], path, f"{path}.scopeName", selector, spec, errors)
    for item in expressions:
        scope, operator, values = item.get("scopeName"), item.get("operator", ""), item.get("values") or []
        if scope in _SCOPES - {"PriorityClass", "VolumeAttributesClass"} and operator != "Exists":
            errors.append(invalid(f"{path}.operator", operator, _MUST_BE_EXISTS))
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.append(required(f"{path}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.append(invalid(f"{path}.values", values, detail))
        else:
            errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))


def validate_quota_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_quota(new)
    scopes, before = ((quota.get("spec") or {}).get("scopes") or () for quota in (new, old))
    if set(scopes) != set(before):
        errors.append(invalid("spec.scopes", scopes, IMMUTABLE))
    return errors


def default_limit_range(obj: dict[str, Any]) -> None:
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


def default_quota(obj: dict[str, Any]) -> None:
    round_up(obj["spec"].get("hard"))
    round_up(obj["status"].get("hard"))
    round_up(obj["status"].get("used"))


def quota_row(obj: Json, now: float) -> list[Any]:
    hard, used = part(obj, "status", "hard"), part(obj, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        column = limits if resource.startswith("limits.") else requests
        column.append(f"{resource}: {shown(used, resource, '0')}/{shown(hard, resource, '0')}")
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


LIMIT_RANGE = Strategy(
    group="",
    kind="LimitRange",
    parts={"spec": {}},
    default=default_limit_range,
    allow_create_on_update=True,
    validate_create=validate_limit_range,
    validate_update=as_on_create(validate_limit_range),
)

RESOURCE_QUOTA = Strategy(
    group="",
    kind="ResourceQuota",
    parts={"spec": {}, "status": {}},
    default=default_quota,
    validate_create=validate_quota,
    validate_update=validate_quota_update,
    returns_deleted=True,
    columns="Name|Request|Limit|Age",
    row=quota_row,
)
