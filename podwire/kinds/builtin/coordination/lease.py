"""Lease: a holder, and for how long."""

from typing import Any

from podwire.kinds.field_checks import Errors, Object, non_negative
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.kinds.tables import Json, age_of, name_of, part, text
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    non_negative(spec.get("leaseTransitions") or 0, "spec.leaseTransitions", errors)
    if spec.get("preferredHolder") and not spec.get("strategy"):
        errors.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return errors


def row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), text(part(obj, "spec"), "holderIdentity"), age_of(obj, now)]


LEASE = Strategy(
    group="coordination.k8s.io",
    kind="Lease",
    qualified_finalizers=False,
    parts={"spec": {}},
    allow_create_on_update=True,
    allow_unconditional_update=False,
    validate_create=validate_create,
    validate_update=as_on_create(validate_create),
    columns="Name|Holder|Age",
    row=row,
)
