"""CSIDriver, CSINode, CSIStorageCapacity and VolumeAttachment: what container storage drivers register."""

from typing import Any

from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import (
    NONE,
    UNSET,
    Json,
    age_of,
    count,
    elements,
    flag,
    name_of,
    part,
    strings,
    text,
)

_GROUP = "storage.k8s.io"


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


VOLUME_ATTACHMENT = Strategy(
    group=_GROUP,
    kind="VolumeAttachment",
    parts={"spec": {"source": {}}, "status": {"attached": False}},
    allow_unconditional_update=False,
    returns_deleted=True,
    columns="Name|Attacher|PV|Node|Attached?|Age",
    row=attachment_row,
)

CSI_DRIVER = Strategy(
    group=_GROUP,
    kind="CSIDriver",
    parts={"spec": {}},
    default=default_csi_driver,
    allow_unconditional_update=False,
    returns_deleted=True,
    columns=("Name|AttachRequired?|PodInfoOnMount?|StorageCapacity?|TokenRequests|RequiresRepublish?|Modes|Age"),
    row=csi_driver_row,
)

CSI_NODE = Strategy(
    group=_GROUP,
    kind="CSINode",
    parts={"spec": {}},
    allow_unconditional_update=False,
    returns_deleted=True,
    columns="Name|Drivers#|Age",
    row=csi_node_row,
)

CSI_STORAGE_CAPACITY = Strategy(group=_GROUP, kind="CSIStorageCapacity", allow_unconditional_update=False)
