"""The CSI volume of a pod: by a persistent volume, or inline in the pod. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwire.kubelet.volumes.errors import MountFailed
from podwire.kubelet.volumes.paths import VolumePaths
from podwire.kubelet.volumes.persistent import MountedVolume, group_of, mount_options
from podwire.kubelet.volumes.volume_claims import BoundVolume
from podwire.objects.pods import Pod
from podwire.objects.volumes import Volume
from podwire.protocols.csi import csi_pb2 as pb

PERSISTENT, EPHEMERAL = "Persistent", "Ephemeral"
TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"

Capability = pb.NodeServiceCapability.RPC
_MODES: Mapping[str, tuple[pb.VolumeCapability.AccessMode.Mode, pb.VolumeCapability.AccessMode.Mode]] = {
    "ReadWriteOnce": (
        pb.VolumeCapability.AccessMode.SINGLE_NODE_WRITER,
        pb.VolumeCapability.AccessMode.SINGLE_NODE_MULTI_WRITER,
    ),
    "ReadOnlyMany": (
        pb.VolumeCapability.AccessMode.MULTI_NODE_READER_ONLY,
        pb.VolumeCapability.AccessMode.MULTI_NODE_READER_ONLY,
    ),
    "ReadWriteMany": (
        pb.VolumeCapability.AccessMode.MULTI_NODE_MULTI_WRITER,
        pb.VolumeCapability.AccessMode.MULTI_NODE_MULTI_WRITER,
    ),
    "ReadWriteOncePod": (
        pb.VolumeCapability.AccessMode.SINGLE_NODE_WRITER,
        pb.VolumeCapability.AccessMode.SINGLE_NODE_SINGLE_WRITER,
    ),
}
"""By access mode of Kubernetes: for drivers without and with the capability SINGLE_NODE_MULTI_WRITER."""


@dataclass(frozen=True, slots=True)
class SecretName:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiSource:
    """`name` is the persistent volume's, or that of the pod's volume if it is inline."""

    name: str
    driver: str
    handle: str
    mode: str
    read_only: bool = False
    fs_type: str = ""
    attributes: Mapping[str, str]
    access_modes: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    publish_secret: SecretName | None = None
    stage_secret: SecretName | None = None
    expand_secret: SecretName | None = None
    bound: BoundVolume | None = None

    @property
    def persistent(self) -> bool:
        return self.mode == PERSISTENT

    @property
    def key(self) -> str:
        """Equal for pods that share a staged volume."""
        return f"{self.driver}^{self.handle}"


def of_volume(bound: BoundVolume) -> CsiSource:
    """Raises MountFailed for block devices."""
    source: Mapping[str, Any] = bound.spec["csi"]
    if bound.block:
        reason = "persistent volumes of type csi in volumeMode Block are not supported by podwire"
        raise MountFailed("MapVolume.SetUpDevice failed", bound.name, reason)
    return CsiSource(
        name=bound.name,
        driver=source.get("driver", ""),
        handle=source.get("volumeHandle", ""),
        mode=PERSISTENT,
        read_only=bound.read_only,
        fs_type=source.get("fsType") or "",
        attributes=source.get("volumeAttributes") or {},
        access_modes=tuple(bound.spec.get("accessModes") or ()),
        mount_options=tuple(mount_options(bound)),
        publish_secret=_secret(source.get("nodePublishSecretRef")),
        stage_secret=_secret(source.get("nodeStageSecretRef")),
        expand_secret=_secret(source.get("nodeExpandSecretRef")),
        bound=bound,
    )


def inline(pod: Pod, volume: Volume) -> CsiSource:
    source: Mapping[str, Any] = volume.csi or {}
    secret = source.get("nodePublishSecretRef")
    return CsiSource(
        name=volume.name,
        driver=source.get("driver", ""),
        handle=f"csi-{hashlib.sha256(f'{pod.uid}{volume.name}'.encode()).hexdigest()}",
        mode=EPHEMERAL,
        read_only=bool(source.get("readOnly")),
        fs_type=source.get("fsType") or "",
        attributes=source.get("volumeAttributes") or {},
        publish_secret=SecretName(pod.namespace, secret.get("name", "")) if secret else None,
    )


def mounted(paths: VolumePaths, uid: str, source: CsiSource) -> MountedVolume:
    return MountedVolume(
        name=source.name,
        path=paths.persistent(uid, "csi", source.name) / "mount",
        read_only=source.read_only,
        once_by_one_pod=source.access_modes == ("ReadWriteOncePod",),
        group=group_of(source.bound),
    )


def attachment_name(driver: str, handle: str, node: str) -> str:
    return f"csi-{hashlib.sha256(f'{handle}{driver}{node}'.encode()).hexdigest()}"


def pod_info(pod: Pod, source: CsiSource) -> dict[str, str]:
    """Attributes for drivers with podInfoOnMount."""
    return {
        "csi.storage.k8s.io/pod.name": pod.name,
        "csi.storage.k8s.io/pod.namespace": pod.namespace,
        "csi.storage.k8s.io/pod.uid": pod.uid,
        "csi.storage.k8s.io/serviceAccount.name": pod.spec.service_account_name,
        "csi.storage.k8s.io/ephemeral": "false" if source.persistent else "true",
    }


def volume_capability(source: CsiSource, capabilities: frozenset[int], group: int | None) -> pb.VolumeCapability:
    """How the volume is accessed; a driver with VOLUME_MOUNT_GROUP applies the pod's fsGroup itself."""
    modes = _MODES.get(source.access_modes[0] if source.access_modes else "ReadWriteOnce")
    mode = pb.VolumeCapability.AccessMode.UNKNOWN
    if modes is not None:
        mode = modes[Capability.SINGLE_NODE_MULTI_WRITER in capabilities]
    mount = pb.VolumeCapability.MountVolume(fs_type=source.fs_type, mount_flags=source.mount_options)
    if group is not None and Capability.VOLUME_MOUNT_GROUP in capabilities:
        mount.volume_mount_group = str(group)
    return pb.VolumeCapability(mount=mount, access_mode=pb.VolumeCapability.AccessMode(mode=mode))


def kubelet_applies_group(source: CsiSource, policy: str, capabilities: frozenset[int]) -> bool:
    """Whether the kubelet gives the files to the pod's fsGroup, by the fsGroupPolicy of the CSIDriver."""
    if Capability.VOLUME_MOUNT_GROUP in capabilities or policy == "None" or source.read_only:
        return False
    if policy == "File":
        return True
    once = not source.persistent or bool({"ReadWriteOnce", "ReadWriteOncePod"} & set(source.access_modes))
    return bool(source.fs_type) and once


def _secret(reference: Mapping[str, str] | None) -> SecretName | None:
    return None if not reference else SecretName(reference.get("namespace", ""), reference.get("name", ""))
