"""ReplicationController: the predecessor of ReplicaSet."""

from typing import Any

from podwire.kinds.builtin.apps.template import (
    MISMATCH,
    REPLICA_COLUMNS,
    REPLICA_STATUS,
    numbers,
    replica_cells,
    template_itself,
)
from podwire.kinds.field_checks import Errors, Object
from podwire.kinds.podspec.defaults import default_template
from podwire.kinds.podspec.warnings import workload_warnings
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import Json, label_text, part
from podwire.protocols.k8sapi.status import FieldError, invalid, required


def validate_create(obj: Object) -> list[FieldError]:
    return _spec(obj.get("spec") or {}, None)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return _spec(new.get("spec") or {}, old.get("spec") or {})


def _spec(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    numbers(spec, ("minReadySeconds", "replicas"), errors)
    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        errors.append(required("spec.selector"))
    if template is None:
        errors.append(required("spec.template"))
        return errors
    given = (template.get("metadata") or {}).get("labels")
    if selector and not selector.items() <= (given or {}).items():
        errors.append(invalid("spec.template.metadata.labels", given, MISMATCH))
    template_itself(template, (before or {}).get("template"), "ReplicationController", errors)
    return errors


def default(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    template = spec.get("template")
    if template is not None:
        template.setdefault("metadata", {})
        template.setdefault("spec", {})
        if labels := template["metadata"].get("labels"):
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not obj["metadata"].get("labels"):
                obj["metadata"]["labels"] = dict(labels)
        default_template(template)
    spec.setdefault("replicas", 1)


def row(obj: Json, now: float) -> list[Any]:
    return [*replica_cells(obj, now), label_text(part(obj, "spec"), "selector")]


REPLICATION_CONTROLLER = Strategy(
    group="",
    kind="ReplicationController",
    stored_as="controllers",
    parts={"spec": {}, "status": {"replicas": 0}},
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
