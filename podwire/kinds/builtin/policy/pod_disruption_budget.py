"""PodDisruptionBudget: one limit, and a selector that evictions can rely on."""

from typing import Any

from podwire.kinds.builtin.apps.template import at_most_all, int_or_percent
from podwire.kinds.field_checks import Errors, Object, label_selector, non_negative
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.kinds.tables import Json, age_of, name_of, number, part, shown
from podwire.protocols.k8sapi.status import FieldError, invalid, not_supported

_POLICIES = ("IfHealthyBudget", "AlwaysAllow")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        errors.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            int_or_percent(spec[field], f"spec.{field}", errors)
            at_most_all(spec[field], f"spec.{field}", errors)
    label_selector(spec.get("selector"), "spec.selector", errors)
    policy = spec.get("unhealthyPodEvictionPolicy", _POLICIES[0])
    if policy not in _POLICIES:
        errors.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return errors


def validate_status(new: Object, _old: Object) -> list[FieldError]:
    errors: Errors = []
    for field in _COUNTS:
        non_negative((new.get("status") or {}).get(field) or 0, f"status.{field}", errors)
    return errors


def row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        shown(spec, "minAvailable", "N/A"),
        shown(spec, "maxUnavailable", "N/A"),
        number(part(obj, "status"), "disruptionsAllowed"),
        age_of(obj, now),
    ]


DISRUPTION_BUDGET = Strategy(
    group="policy",
    kind="PodDisruptionBudget",
    parts={
        "spec": {},
        "status": dict.fromkeys(("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0),
    },
    allow_unconditional_update=False,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=as_on_create(validate_create),
    validate_subresources={"status": validate_status},
    columns="Name|Min Available|Max Unavailable|Allowed Disruptions#|Age",
    row=row,
)
