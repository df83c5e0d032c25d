"""PersistentVolume: storage of the cluster, and the claim that it is bound to."""

from typing import Any

from podwire.kinds.podspec import persistent_volume_rules
from podwire.kinds.podspec.persistent_volume_warnings import volume_warnings
from podwire.kinds.podspec.resource_defaults import round_up
from podwire.kinds.podspec.volume_defaults import default_source
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import (
    UNSET,
    Json,
    age_of,
    is_deleted,
    name_of,
    part,
    shown,
    strings,
    text,
)

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
"""Access modes in the order in which kubectl shows them."""
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def default(obj: dict[str, Any]) -> None:
    spec, status = obj["spec"], obj["status"]
    if not status.get("phase"):
        status["phase"] = "Pending"
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    round_up(spec.get("capacity"))
    default_source(spec)


def prepare_create(obj: dict[str, Any]) -> None:
    obj["status"] = {"phase": "Pending"}
    if created := obj["metadata"].get("creationTimestamp"):
        obj["status"]["lastPhaseTransitionTime"] = created


def row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    claim = part(spec, "claimRef")
    return [
        name_of(obj),
        shown(part(spec, "capacity"), "storage", "0"),
        access_modes(spec),
        text(spec, "persistentVolumeReclaimPolicy"),
        "Terminating" if is_deleted(obj) else text(status, "phase"),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        storage_class(obj),
        text(spec, "volumeAttributesClassName", UNSET),
        text(status, "reason"),
        age_of(obj, now),
        text(spec, "volumeMode", UNSET),
    ]


def access_modes(value: Json) -> str:
    modes = strings(value, "accessModes")
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def storage_class(obj: Json) -> str:
    return text(part(obj, "metadata", "annotations"), _CLASS_ANNOTATION) or text(part(obj, "spec"), "storageClassName")


PERSISTENT_VOLUME = Strategy(
    group="",
    kind="PersistentVolume",
    parts={"spec": {}, "status": {}},
    default=default,
    prepare_create=prepare_create,
    validate_create=persistent_volume_rules.volume,
    validate_update=persistent_volume_rules.volume_update,
    warnings=volume_warnings,
    returns_deleted=True,
    columns=(
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|"
        "VolumeMode*"
    ),
    row=row,
)
