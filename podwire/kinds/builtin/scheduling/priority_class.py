"""PriorityClass: a number for pods, and whether they preempt others."""

from typing import Any

from podwire.kinds.field_checks import Choice, Errors, Object, unchanged
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, age_of, name_of, number, text
from podwire.protocols.k8sapi.status import FieldError, forbidden

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_PREEMPTION_POLICIES = Choice(("PreemptLowerPriority", "Never"))


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    name, value = (obj.get("metadata") or {}).get("name", ""), obj.get("value") or 0
    if name.startswith("system-"):
        if reason := _not_a_system_class(name, value, bool(obj.get("globalDefault"))):
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: "
            errors.append(forbidden("metadata.name", detail + reason))
    elif value > HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        errors.append(forbidden("value", detail))
    if (policy := obj.get("preemptionPolicy")) is not None:
        _PREEMPTION_POLICIES.require(policy, "preemptionPolicy", errors)
    return errors


def _not_a_system_class(name: str, value: int, default: bool) -> str:
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if value != known:
        return f"value of {name} PriorityClass must be {known}"
    return f"globalDefault of {name} PriorityClass must be false" if default else ""


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    if (new.get("value") or 0) != (old.get("value") or 0):
        errors.append(forbidden("value", "may not be changed in an update."))
    unchanged(new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy", errors)
    return errors


def default(obj: dict[str, Any]) -> None:
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def row(obj: Json, now: float) -> list[Any]:
    return [
        name_of(obj),
        number(obj, "value"),
        obj.get("globalDefault") is True,
        age_of(obj, now),
        text(obj, "preemptionPolicy"),
    ]


PRIORITY_CLASS = Strategy(
    group="scheduling.k8s.io",
    kind="PriorityClass",
    default=default,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    columns="Name|Value#|Global-Default?|Age|PreemptionPolicy",
    row=row,
)
