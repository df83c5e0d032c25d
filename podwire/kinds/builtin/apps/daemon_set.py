"""DaemonSet: one pod per node."""

from typing import Any

from podwire.kinds.builtin.apps.template import (
    amount,
    at_most_all,
    container_cells,
    int_or_percent,
    numbers,
    validate_updated,
    workload_selector,
    workload_template,
)
from podwire.kinds.field_checks import Choice, Errors, Object
from podwire.kinds.podspec.defaults import POD_TEMPLATE, default_template
from podwire.kinds.podspec.warnings import template_warnings
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, age_of, label_text, name_of, number, part, selector_text
from podwire.protocols.k8sapi.status import FieldError, Problem, invalid, required

_DAEMON_STRATEGIES = Choice(("RollingUpdate", "OnDelete"))


def validate_create(obj: Object) -> list[FieldError]:
    return _spec(obj.get("spec") or {}, None)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return validate_updated(_spec, new, old)


def _spec(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    workload_selector(spec, "daemonset", errors)
    workload_template(spec, before, "DaemonSet", errors)
    numbers(spec, ("minReadySeconds", "revisionHistoryLimit"), errors)
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        path = "spec.updateStrategy.rollingUpdate"
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        for value, field in ((unavailable, "maxUnavailable"), (surge, "maxSurge")):
            int_or_percent(value, f"{path}.{field}", errors)
            at_most_all(value, f"{path}.{field}", errors)
        if amount(unavailable) and amount(surge):
            errors.append(invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
        elif not amount(unavailable) and not amount(surge):
            errors.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    elif strategy.get("type") != "OnDelete":
        errors.append(FieldError(Problem.NOT_SUPPORTED, "spec.updateStrategy", strategy, _DAEMON_STRATEGIES.detail))
    return errors


def default(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    strategy = spec["updateStrategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    default_template(spec["template"])


def row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name_of(obj),
        number(status, "desiredNumberScheduled"),
        number(status, "currentNumberScheduled"),
        number(status, "numberReady"),
        number(status, "updatedNumberScheduled"),
        number(status, "numberAvailable"),
        label_text(part(spec, "template", "spec"), "nodeSelector"),
        age_of(obj, now),
        *container_cells(part(spec, "template")),
        selector_text(spec, "selector"),
    ]


DAEMON_SET = Strategy(
    group="apps",
    kind="DaemonSet",
    parts={
        "spec": {**POD_TEMPLATE, "updateStrategy": {}},
        "status": dict.fromkeys(
            ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"), 0
        ),
    },
    default=default,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=template_warnings,
    columns=("Name|Desired#|Current#|Ready#|Up-to-date#|Available#|Node Selector|Age|Containers*|Images*|Selector*"),
    row=row,
)
