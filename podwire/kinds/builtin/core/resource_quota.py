"""ResourceQuota: standard resources, and scopes that fit them."""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.kinds.field_checks import IMMUTABLE, Errors, Object, named
from podwire.kinds.podspec.resource_defaults import round_up
from podwire.kinds.podspec.resource_rules import COUNTED_NAMES
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, age_of, name_of, part, shown
from podwire.objects import names, quantity
from podwire.protocols.k8sapi.status import FieldError, invalid, required

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


def validate_create(obj: Object) -> list[FieldError]:
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


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_create(new)
    scopes, before = ((quota.get("spec") or {}).get("scopes") or () for quota in (new, old))
    if set(scopes) != set(before):
        errors.append(invalid("spec.scopes", scopes, IMMUTABLE))
    return errors


def default(obj: dict[str, Any]) -> None:
    round_up(obj["spec"].get("hard"))
    round_up(obj["status"].get("hard"))
    round_up(obj["status"].get("used"))


def row(obj: Json, now: float) -> list[Any]:
    hard, used = part(obj, "status", "hard"), part(obj, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        column = limits if resource.startswith("limits.") else requests
        column.append(f"{resource}: {shown(used, resource, '0')}/{shown(hard, resource, '0')}")
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


RESOURCE_QUOTA = Strategy(
    group="",
    kind="ResourceQuota",
    parts={"spec": {}, "status": {}},
    default=default,
    validate_create=validate_create,
    validate_update=validate_update,
    returns_deleted=True,
    columns="Name|Request|Limit|Age",
    row=row,
)
