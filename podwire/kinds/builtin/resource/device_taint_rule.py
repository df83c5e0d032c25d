"""DeviceTaintRule: a taint that an administrator gives to devices."""

from collections.abc import Callable
from typing import Any

from podwire.kinds.builtin.resource.device_checks import driver, label, pool, taint
from podwire.kinds.field_checks import Errors, Object, conditions
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.kinds.tables import named_row
from podwire.objects import times
from podwire.protocols.k8sapi.status import FieldError, too_many

MOST_CONDITIONS = 8


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    selector = spec.get("deviceSelector") or {}
    for field, check in (("driver", driver), ("pool", pool), ("device", label)):
        if (given := selector.get(field)) is not None:
            check(given, f"spec.deviceSelector.{field}", errors)
    taint(spec.get("taint") or {}, "spec.taint", errors)
    return errors


def validate_status(new: Object, _old: Object) -> list[FieldError]:
    errors: Errors = []
    given = (new.get("status") or {}).get("conditions") or ()
    conditions(given, "status.conditions", errors)
    if len(given) > MOST_CONDITIONS:
        errors.append(too_many("status.conditions", len(given), MOST_CONDITIONS))
    return errors


def default_times(obj: dict[str, Any], now: Callable[[], float]) -> None:
    date_taint(obj["spec"]["taint"], now)


def date_taint(taint: dict[str, Any], now: Callable[[], float]) -> None:
    """A taint without a time was added now."""
    if not taint.get("timeAdded"):
        taint["timeAdded"] = times.rfc3339(now())


DEVICE_TAINT_RULE = Strategy(
    group="resource.k8s.io",
    kind="DeviceTaintRule",
    parts={"spec": {"taint": {}}, "status": {}},
    default_times=default_times,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=as_on_create(validate_create),
    validate_subresources={"status": validate_status},
    columns="Name|Age",
    row=named_row,
)
