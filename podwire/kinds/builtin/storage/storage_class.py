"""StorageClass and VolumeAttributesClass: one of each may be the default."""

from typing import Any

from podwire.kinds.podspec import persistent_volume_rules
from podwire.kinds.podspec.persistent_volume_warnings import storage_class_warnings
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import (
    Json,
    age_of,
    flag,
    name_of,
    part,
    text,
)

_DEFAULT_STORAGE_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_ATTRIBUTES_CLASS = ("volumeattributesclass.alpha.kubernetes.io/is-default-class",)


def default_storage_class(obj: dict[str, Any]) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


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


STORAGE_CLASS = Strategy(
    group="storage.k8s.io",
    kind="StorageClass",
    default=default_storage_class,
    validate_create=persistent_volume_rules.storage_class,
    validate_update=persistent_volume_rules.storage_class_update,
    warnings=storage_class_warnings,
    returns_deleted=True,
    columns="Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
    row=storage_class_row,
)


VOLUME_ATTRIBUTES_CLASS = Strategy(
    group="storage.k8s.io",
    kind="VolumeAttributesClass",
    validate_create=persistent_volume_rules.attributes_class,
    validate_update=persistent_volume_rules.attributes_class_update,
    returns_deleted=True,
    columns="Name|DriverName|Age",
    row=attributes_class_row,
)
