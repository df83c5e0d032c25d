"""DeviceTaintRules: taints that an administrator gives to devices."""

from podwire.kinds.validation.conditions import conditions
from podwire.kinds.validation.devices import driver, label, pool, taint
from podwire.kinds.validation.pod_values import Errors, Object
from podwire.kinds.validation.rules import Rules
from podwire.protocols.k8sapi.status import FieldError, too_many

MOST_CONDITIONS = 8


def create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    selector = spec.get("deviceSelector") or {}
    for field, check in (("driver", driver), ("pool", pool), ("device", label)):
        if (given := selector.get(field)) is not None:
            check(given, f"spec.deviceSelector.{field}", errors)
    taint(spec.get("taint") or {}, "spec.taint", errors)
    return errors


def update(new: Object, _old: Object) -> list[FieldError]:
    return create(new)


def update_status(new: Object, _old: Object) -> list[FieldError]:
    errors: Errors = []
    given = (new.get("status") or {}).get("conditions") or ()
    conditions(given, "status.conditions", errors)
    if len(given) > MOST_CONDITIONS:
        errors.append(too_many("status.conditions", len(given), MOST_CONDITIONS))
    return errors


RULES = {("resource.k8s.io", "DeviceTaintRule"): Rules(create, update, {"status": update_status})}
