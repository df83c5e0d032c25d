"""PersistentVolumeClaim: a request for storage."""

from typing import Any

from podwire.kinds.builtin.core.persistent_volume import access_modes, storage_class
from podwire.kinds.podspec import persistent_volume_rules
from podwire.kinds.podspec.persistent_volume_warnings import volume_claim_warnings
from podwire.kinds.podspec.resource_defaults import round_up
from podwire.kinds.podspec.volume_defaults import default_claim_spec
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import (
    UNSET,
    Json,
    age_of,
    is_deleted,
    name_of,
    part,
    shown,
    text,
)


def default(obj: dict[str, Any]) -> None:
    status = obj["status"]
    if not status.get("phase"):
        status["phase"] = "Pending"
    default_claim_spec(obj["spec"])
    round_up(status.get("capacity"))
    round_up(status.get("allocatedResources"))


def prepare_create(obj: dict[str, Any]) -> None:
    """Copies dataSource to dataSourceRef, or back where that is possible."""
    obj["status"] = {"phase": "Pending"}
    spec = obj["spec"]
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    bound = text(spec, "volumeName")
    return [
        name_of(obj),
        "Terminating" if is_deleted(obj) else text(status, "phase"),
        bound,
        shown(part(status, "capacity"), "storage", "0") if bound else "",
        access_modes(status) if bound else "",
        storage_class(obj),
        text(spec, "volumeAttributesClassName", UNSET),
        age_of(obj, now),
        text(spec, "volumeMode", UNSET),
    ]


PERSISTENT_VOLUME_CLAIM = Strategy(
    group="",
    kind="PersistentVolumeClaim",
    parts={"spec": {"resources": {}}, "status": {}},
    default=default,
    prepare_create=prepare_create,
    validate_create=persistent_volume_rules.claim,
    validate_update=persistent_volume_rules.claim_update,
    warnings=volume_claim_warnings,
    returns_deleted=True,
    columns="Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode*",
    row=row,
)
