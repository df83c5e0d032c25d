"""Deployment: a rolling update of ReplicaSets."""

from typing import Any

from podwire.kinds.builtin.apps.template import (
    amount,
    at_most_all,
    container_cells,
    int_or_percent,
    numbers,
    status_counts,
    validate_updated,
    workload_selector,
    workload_template,
)
from podwire.kinds.field_checks import Choice, Errors, Object
from podwire.kinds.podspec.defaults import POD_TEMPLATE, default_template
from podwire.kinds.podspec.warnings import workload_warnings
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import INVALID, Json, age_of, name_of, number, part, selector_text
from podwire.protocols.k8sapi.status import FieldError, Problem, forbidden, invalid

_DEPLOYMENT_STRATEGIES = Choice(("Recreate", "RollingUpdate"))


def validate_create(obj: Object) -> list[FieldError]:
    return _spec(obj.get("spec") or {}, None)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return validate_updated(_spec, new, old)


def _spec(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    numbers(spec, ("replicas",), errors)
    workload_selector(spec, "deployment", errors)
    workload_template(spec, before, "ReplicaSet", errors)
    strategy = spec.get("strategy") or {}
    kind, rolling, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.strategy"
    if kind == "Recreate":
        if rolling is not None:
            detail = "may not be specified when strategy `type` is 'Recreate'"
            errors.append(forbidden(f"{path}.rollingUpdate", detail))
    elif kind == "RollingUpdate":
        rolling, place = rolling or {}, f"{path}.rollingUpdate"
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        int_or_percent(unavailable, f"{place}.maxUnavailable", errors)
        int_or_percent(surge, f"{place}.maxSurge", errors)
        if amount(unavailable) == 0 and amount(surge) == 0:
            errors.append(invalid(f"{place}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
        at_most_all(unavailable, f"{place}.maxUnavailable", errors)
    else:
        errors.append(FieldError(Problem.NOT_SUPPORTED, path, strategy, _DEPLOYMENT_STRATEGIES.detail))
    numbers(spec, ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), errors)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        errors.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return errors


def default(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    spec.setdefault("replicas", 1)
    strategy = spec["strategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    default_template(spec["template"])


def row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name_of(obj),
        f"{number(status, 'readyReplicas')}/{number(spec, 'replicas')}",
        number(status, "updatedReplicas"),
        number(status, "availableReplicas"),
        age_of(obj, now),
        *container_cells(part(spec, "template")),
        selector_text(spec, "selector", empty="", broken=INVALID),
    ]


DEPLOYMENT = Strategy(
    group="apps",
    kind="Deployment",
    parts={"spec": {**POD_TEMPLATE, "strategy": {}}, "status": {}},
    default=default,
    counts_generation=True,
    generation_follows_annotations=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=workload_warnings,
    validate_subresources={
        "scale": validate_update,
        "status": status_counts("updatedReplicas", "readyReplicas", "availableReplicas"),
    },
    columns="Name|Ready|Up-to-date|Available|Age|Containers*|Images*|Selector*",
    row=row,
)
