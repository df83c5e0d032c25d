"""Namespace: removed when its own finalizers, which are in its spec, are gone."""

from typing import Any

from podwire.kinds.field_checks import Errors, Object, named
from podwire.kinds.object_meta import qualified_finalizer
from podwire.kinds.strategy import Object as StoredObject
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import Json, age_of, name_of, part, text
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid

METADATA_NAME = "kubernetes.io/metadata.name"


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    _finalizers(obj, errors)
    return errors


def validate_finalize(new: Object, _old: Object) -> list[FieldError]:
    errors: Errors = []
    _finalizers(new, errors)
    return errors


def validate_status(new: Object, _old: Object) -> list[FieldError]:
    phase = (new.get("status") or {}).get("phase", "")
    if not (new.get("metadata") or {}).get("deletionTimestamp"):
        if phase != "Active":
            return [invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
    elif phase != "Terminating":
        return [invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")]
    return []


def _finalizers(obj: Object, errors: Errors) -> None:
    for index, finalizer in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        path = f"spec.finalizers[{index}]"
        named(names.qualified_name, finalizer, path, errors)
        qualified_finalizer(finalizer, path, errors)


def default(obj: dict[str, Any]) -> None:
    label_namespace(obj)
    if not obj["status"].get("phase"):
        obj["status"]["phase"] = "Active"


def label_namespace(obj: dict[str, Any]) -> None:
    """Every namespace carries its name as a label; one with a generateName only once it is named."""
    metadata = obj.get("metadata") or {}
    if name := metadata.get("name"):
        metadata.setdefault("labels", {})[METADATA_NAME] = name


def prepare_create(obj: dict[str, Any]) -> None:
    label_namespace(obj)
    obj["status"] = {"phase": "Active"}
    finalizers = obj["spec"].setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")


def row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), text(part(obj, "status"), "phase"), age_of(obj, now)]


def prepare_update(new: StoredObject, old: StoredObject) -> None:
    """Restores spec.finalizers, which change through the subresource `finalize` only."""
    new["spec"] = {**new.get("spec", {})}
    if "finalizers" in old.get("spec", {}):
        new["spec"]["finalizers"] = old["spec"]["finalizers"]
    else:
        new["spec"].pop("finalizers", None)


def prepare_delete(obj: StoredObject) -> None:
    obj.setdefault("status", {})["phase"] = "Terminating"


def removal_blocked(obj: StoredObject) -> bool:
    return bool(obj.get("spec", {}).get("finalizers"))


NAMESPACE = Strategy(
    group="",
    kind="Namespace",
    check_name=names.dns_label,
    parts={"spec": {}, "status": {}},
    default=default,
    prepare_create=prepare_create,
    prepare_update=prepare_update,
    prepare_delete=prepare_delete,
    removal_blocked=removal_blocked,
    validate_create=validate_create,
    validate_subresources={"finalize": validate_finalize, "status": validate_status},
    returns_deleted=True,
    selectable=(selectable("status.phase"),),
    columns="Name|Status|Age",
    row=row,
)
