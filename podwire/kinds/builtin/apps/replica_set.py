"""ReplicaSet: so many pods of a template."""

from typing import Any

from podwire.kinds.builtin.apps.template import (
    REPLICA_COLUMNS,
    REPLICA_STATUS,
    numbers,
    replica_cells,
    validate_updated,
    workload_selector,
    workload_template,
)
from podwire.kinds.field_checks import Errors, Object
from podwire.kinds.podspec.defaults import POD_TEMPLATE, default_template
from podwire.kinds.podspec.warnings import workload_warnings
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import Json, part, selector_text
from podwire.protocols.k8sapi.status import FieldError


def validate_create(obj: Object) -> list[FieldError]:
    return _spec(obj.get("spec") or {}, None)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return validate_updated(_spec, new, old)


def _spec(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    numbers(spec, ("replicas", "minReadySeconds"), errors)
    workload_selector(spec, "deployment", errors)  # the word that upstream uses for both
    workload_template(spec, before, "ReplicaSet", errors)
    return errors


def default(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    spec.setdefault("replicas", 1)
    default_template(spec["template"])


def row(obj: Json, now: float) -> list[Any]:
    return [*replica_cells(obj, now), selector_text(part(obj, "spec"), "selector")]


REPLICA_SET = Strategy(
    group="apps",
    kind="ReplicaSet",
    parts={"spec": POD_TEMPLATE, "status": {"replicas": 0}},
    default=default,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=workload_warnings,
    validate_subresources={"scale": validate_update, "status": REPLICA_STATUS},
    selectable=(selectable("status.replicas", absent="0"),),
    columns=REPLICA_COLUMNS,
    row=row,
)
