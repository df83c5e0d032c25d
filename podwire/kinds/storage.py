"""PersistentVolume, PersistentVolumeClaim and the kinds of storage.k8s.io."""

from typing import Any

from podwire.kinds.podspec.resource_defaults import round_up
from podwire.kinds.podspec.volume_defaults import default_claim_spec, default_source
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import (
    NONE,
    UNSET,
    Json,
    age_of,
    count,
    elements,
    flag,
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
_DEFAULT_STORAGE_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_ATTRIBUTES_CLASS = ("volumeattributesclass.alpha.kubernetes.io/is-default-class",)
_STORAGE = "storage.k8s.io"


def default_volume(obj: dict[str, Any]) -> None:
    spec, status = obj["spec"], obj["status"]
    if not status.get("phase"):
        status["phase"] = "Pending"
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    round_up(spec.get("capacity"))
    default_source(spec)


def default_claim(obj: dict[str, Any]) -> None:
    status = obj["status"]
    if not status.get("phase"):
        status["phase"] = "Pending"
    default_claim_spec(obj["spec"])
    round_up(status.get("capacity"))
    round_up(status.get("allocatedResources"))


def default_storage_class(obj: dict[str, Any]) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def default_csi_driver(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("storageCapacity", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]
    spec.setdefault("requiresRepublish", False)
    spec.setdefault("seLinuxMount", False)


def prepare_volume(obj: dict[str, Any]) -> None:
    obj["status"] = {"phase": "Pending"}
    if created := obj["metadata"].get("creationTimestamp"):
        obj["status"]["lastPhaseTransitionTime"] = created


def prepare_claim(obj: dict[str, Any]) -> None:
    """Copies dataSource to dataSourceRef, or back where that is possible."""
    obj["status"] = {"phase": "Pending"}
    spec = obj["spec"]
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def volume_row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    claim = part(spec, "claimRef")
    return [
        name_of(obj),
        shown(part(spec, "capacity"), "storage", "0"),
        _modes(spec),
        text(spec, "persistentVolumeReclaimPolicy"),
        "Terminating" if is_deleted(obj) else text(status, "phase"),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        _class(obj),
        text(spec, "volumeAttributesClassName", UNSET),
        text(status, "reason"),
        age_of(obj, now),
        text(spec, "volumeMode", UNSET),
    ]


def claim_row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    bound = text(spec, "volumeName")
    return [
        name_of(obj),
        "Terminating" if is_deleted(obj) else text(status, "phase"),
        bound,
        shown(part(status, "capacity"), "storage", "0") if bound else "",
        _modes(status) if bound else "",
        _class(obj),
        text(spec, "volumeAttributesClassName", UNSET),
        age_of(obj, now),
        text(spec, "volumeMode", UNSET),
    ]


def _modes(value: Json) -> str:
    modes = strings(value, "accessModes")
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _class(obj: Json) -> str:
    return text(part(obj, "metadata", "annotations"), _CLASS_ANNOTATION) or text(part(obj, "spec"), "storageClassName")


def storage_class_row(obj: Json, now: float) -> list[Any]:
    return [
        _name_of_class(obj, _DEFAULT_STORAGE_CLASS),
        text(obj, "provisioner"),
        text(obj, "reclaimPolicy", "Delete"),
        text(obj, "volumeBindingMode", "Immediate"),
        flag(obj, "allowVolumeExpansion"),
        age_of(obj, now),
    ]


def attributes_class_row(obj: Json, now: float) -> list[Any]:
    return [_name_of_class(obj, _DEFAULT_ATTRIBUTES_CLASS), text(obj, "driverName"), age_of(obj, now)]


def _name_of_class(obj: Json, marks: tuple[str, ...]) -> str:
    annotations = part(obj, "metadata", "annotations")
    chosen = any(annotations.get(mark) == "true" for mark in marks)
    return f"{name_of(obj)} (default)" if chosen else name_of(obj)


def attachment_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        text(spec, "attacher"),
        text(part(spec, "source"), "persistentVolumeName"),
        text(spec, "nodeName"),
        flag(part(obj, "status"), "attached"),
        age_of(obj, now),
    ]


def csi_driver_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    audiences = ",".join(text(request, "audience") for request in elements(spec, "tokenRequests"))
    return [
        name_of(obj),
        flag(spec, "attachRequired", default=True),
        flag(spec, "podInfoOnMount"),
        flag(spec, "storageCapacity"),
        audiences if "tokenRequests" in spec else UNSET,
        flag(spec, "requiresRepublish"),
        ",".join(strings(spec, "volumeLifecycleModes")) or NONE,
        age_of(obj, now),
    ]


def csi_node_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), count(part(obj, "spec"), "drivers"), age_of(obj, now)]


PERSISTENT_VOLUME = Strategy(
    group="",
    kind="PersistentVolume",
    parts={"spec": {}, "status": {}},
    default=default_volume,
    prepare_create=prepare_volume,
    returns_deleted=True,
    columns=(
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|"
        "VolumeMode*"
    ),
    row=volume_row,
)

PERSISTENT_VOLUME_CLAIM = Strategy(
    group="",
    kind="PersistentVolumeClaim",
    parts={"spec": {"resources": {}}, "status": {}},
    default=default_claim,
    prepare_create=prepare_claim,
    returns_deleted=True,
    columns="Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode*",
    row=claim_row,
)

STORAGE_CLASS = Strategy(
    group=_STORAGE,
    kind="StorageClass",
    default=default_storage_class,
    returns_deleted=True,
    columns="Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
    row=storage_class_row,
)

VOLUME_ATTRIBUTES_CLASS = Strategy(
    group=_STORAGE,
    kind="VolumeAttributesClass",
    returns_deleted=True,
    columns="Name|DriverName|Age",
    row=attributes_class_row,
)

VOLUME_ATTACHMENT = Strategy(
    group=_STORAGE,
    kind="VolumeAttachment",
    parts={"spec": {"source": {}}, "status": {"attached": False}},
    allow_unconditional_update=False,
    returns_deleted=True,
    columns="Name|Attacher|PV|Node|Attached?|Age",
    row=attachment_row,
)

CSI_DRIVER = Strategy(
    group=_STORAGE,
    kind="CSIDriver",
    parts={"spec": {}},
    default=default_csi_driver,
    allow_unconditional_update=False,
    returns_deleted=True,
    columns=("Name|AttachRequired?|PodInfoOnMount?|StorageCapacity?|TokenRequests|RequiresRepublish?|Modes|Age"),
    row=csi_driver_row,
)

CSI_NODE = Strategy(
    group=_STORAGE,
    kind="CSINode",
    parts={"spec": {}},
    allow_unconditional_update=False,
    returns_deleted=True,
    columns="Name|Drivers#|Age",
    row=csi_node_row,
)

CSI_STORAGE_CAPACITY = Strategy(group=_STORAGE, kind="CSIStorageCapacity", allow_unconditional_update=False)
