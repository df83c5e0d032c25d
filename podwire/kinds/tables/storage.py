"""Rows of volumes, claims on them and the classes that make them."""

from typing import Any

from podwire.kinds.tables.values import (
    NONE,
    UNSET,
    Json,
    Rows,
    age,
    count,
    deleted,
    elements,
    flag,
    name,
    part,
    shown,
    strings,
    text,
)

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
"""Access modes in the order in which they are told."""

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_STORAGE_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_ATTRIBUTES_CLASS = ("volumeattributesclass.alpha.kubernetes.io/is-default-class",)


def volume(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    claim = part(spec, "claimRef")
    return [
        name(obj),
        shown(part(spec, "capacity"), "storage", "0"),
        _modes(spec),
        text(spec, "persistentVolumeReclaimPolicy"),
        "Terminating" if deleted(obj) else text(status, "phase"),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        _class(obj),
        text(spec, "volumeAttributesClassName", UNSET),
        text(status, "reason"),
        age(obj, now),
        text(spec, "volumeMode", UNSET),
    ]


def claim(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    bound = text(spec, "volumeName")
    return [
        name(obj),
        "Terminating" if deleted(obj) else text(status, "phase"),
        bound,
        shown(part(status, "capacity"), "storage", "0") if bound else "",
        _modes(status) if bound else "",
        _class(obj),
        text(spec, "volumeAttributesClassName", UNSET),
        age(obj, now),
        text(spec, "volumeMode", UNSET),
    ]


def _modes(value: Json) -> str:
    modes = strings(value, "accessModes")
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _class(obj: Json) -> str:
    return text(part(obj, "metadata", "annotations"), _CLASS_ANNOTATION) or text(part(obj, "spec"), "storageClassName")


def storage_class(obj: Json, now: float) -> list[Any]:
    return [
        _name_of_class(obj, _DEFAULT_STORAGE_CLASS),
        text(obj, "provisioner"),
        text(obj, "reclaimPolicy", "Delete"),
        text(obj, "volumeBindingMode", "Immediate"),
        flag(obj, "allowVolumeExpansion"),
        age(obj, now),
    ]


def attributes_class(obj: Json, now: float) -> list[Any]:
    return [_name_of_class(obj, _DEFAULT_ATTRIBUTES_CLASS), text(obj, "driverName"), age(obj, now)]


def _name_of_class(obj: Json, marks: tuple[str, ...]) -> str:
    annotations = part(obj, "metadata", "annotations")
    chosen = any(annotations.get(each) == "true" for each in marks)
    return f"{name(obj)} (default)" if chosen else name(obj)


def attachment(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name(obj),
        text(spec, "attacher"),
        text(part(spec, "source"), "persistentVolumeName"),
        text(spec, "nodeName"),
        flag(part(obj, "status"), "attached"),
        age(obj, now),
    ]


def csi_driver(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    audiences = ",".join(text(each, "audience") for each in elements(spec, "tokenRequests"))
    return [
        name(obj),
        flag(spec, "attachRequired", default=True),
        flag(spec, "podInfoOnMount"),
        flag(spec, "storageCapacity"),
        audiences if "tokenRequests" in spec else UNSET,
        flag(spec, "requiresRepublish"),
        ",".join(strings(spec, "volumeLifecycleModes")) or NONE,
        age(obj, now),
    ]


def csi_node(obj: Json, now: float) -> list[Any]:
    return [name(obj), count(part(obj, "spec"), "drivers"), age(obj, now)]


ROWS: Rows = {
    ("", "persistentvolumeclaims"): claim,
    ("", "persistentvolumes"): volume,
    ("storage.k8s.io", "csidrivers"): csi_driver,
    ("storage.k8s.io", "csinodes"): csi_node,
    ("storage.k8s.io", "storageclasses"): storage_class,
    ("storage.k8s.io", "volumeattachments"): attachment,
    ("storage.k8s.io", "volumeattributesclasses"): attributes_class,
}
