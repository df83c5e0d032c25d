"""Lease and PriorityClass: a few numbers each."""

from typing import Any

from podwire.kinds.field_checks import Choice, Errors, Object, non_negative, unchanged
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.kinds.tables import Json, age_of, name_of, number, part, text
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_PREEMPTION_POLICIES = Choice(("PreemptLowerPriority", "Never"))


def validate_lease(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    non_negative(spec.get("leaseTransitions") or 0, "spec.leaseTransitions", errors)
    if spec.get("preferredHolder") and not spec.get("strategy"):
        errors.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return errors


def validate_priority_class(obj: Object) -> list[FieldError]:
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


def validate_priority_class_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    if (new.get("value") or 0) != (old.get("value") or 0):
        errors.append(forbidden("value", "may not be changed in an update."))
    unchanged(new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy", errors)
    return errors


def default_priority_class(obj: dict[str, Any]) -> None:
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def lease_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), text(part(obj, "spec"), "holderIdentity"), age_of(obj, now)]


def priority_class_row(obj: Json, now: float) -> list[Any]:
    return [
        name_of(obj),
        number(obj, "value"),
        obj.get("globalDefault") is True,
        age_of(obj, now),
        text(obj, "preemptionPolicy"),
    ]


LEASE = Strategy(
    group="coordination.k8s.io",
    kind="Lease",
    qualified_finalizers=False,
    parts={"spec": {}},
    allow_create_on_update=True,
    allow_unconditional_update=False,
    validate_create=validate_lease,
    validate_update=as_on_create(validate_lease),
    columns="Name|Holder|Age",
    row=lease_row,
)

PRIORITY_CLASS = Strategy(
    group="scheduling.k8s.io",
    kind="PriorityClass",
    default=default_priority_class,
    counts_generation=True,
    validate_create=validate_priority_class,
    validate_update=validate_priority_class_update,
    columns="Name|Value#|Global-Default?|Age|PreemptionPolicy",
    row=priority_class_row,
)
