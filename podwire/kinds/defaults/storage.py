"""Defaults of volumes, claims, storage classes and CSI drivers."""

from typing import Any

from podwire.kinds.defaults.resources import round_up
from podwire.kinds.defaults.volumes import default_claim_spec, default_source


def _persistent_volume(obj: dict[str, Any]) -> None:
    spec, status = obj["spec"], obj["status"]
    if not status.get("phase"):
        status["phase"] = "Pending"
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    round_up(spec.get("capacity"))
    default_source(spec)


def _persistent_volume_claim(obj: dict[str, Any]) -> None:
    status = obj["status"]
    if not status.get("phase"):
        status["phase"] = "Pending"
    default_claim_spec(obj["spec"])
    round_up(status.get("capacity"))
    round_up(status.get("allocatedResources"))


def _storage_class(obj: dict[str, Any]) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _csi_driver(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("storageCapacity", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]
    spec.setdefault("requiresRepublish", False)
    spec.setdefault("seLinuxMount", False)


_STORAGE = "storage.k8s.io"

DEFAULTS = {
    ("", "PersistentVolume"): _persistent_volume,
    ("", "PersistentVolumeClaim"): _persistent_volume_claim,
    (_STORAGE, "CSIDriver"): _csi_driver,
    (_STORAGE, "StorageClass"): _storage_class,
}
