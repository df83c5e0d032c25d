"""Finds the persistent volume behind a pod's volume: first its claim, then the volume. Messages are upstream's.

A node may read only claims that its pods name and volumes that these are bound to, one by one, so both are read when a
pod needs them; nothing is watched. A claim that is not bound yet is read again with the next attempt to set up volumes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwire.kubelet.volumes.errors import NotProcessed
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.objects.volumes import Volume
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

CLAIMS = Kind(group="", version="v1", resource="persistentvolumeclaims", kind="PersistentVolumeClaim")
VOLUMES = Kind(group="", version="v1", resource="persistentvolumes", kind="PersistentVolume", namespaced=False)
PROTECTION = "kubernetes.io/pvc-protection"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundVolume:
    """A persistent volume and the claim that it is bound to."""

    name: str
    spec: Mapping[str, Any]
    annotations: Mapping[str, str]
    claim: Object
    read_only: bool
    """As the pod's volume says; the volume's own access modes do not make it so."""

    @property
    def block(self) -> bool:
        return self.spec.get("volumeMode") == "Block"

    @property
    def once_by_one_pod(self) -> bool:
        """Whether ReadWriteOncePod is its only access mode."""
        return self.spec.get("accessModes") == ["ReadWriteOncePod"]


class VolumeClaims:
    def __init__(self, api: Client) -> None:
        self._api = api

    async def bound(self, pod: Pod, volume: Volume) -> BoundVolume:
        """The volume behind a persistentVolumeClaim or ephemeral volume. Raises NotProcessed."""
        source = volume.persistent_volume_claim
        name = claim_name(pod, volume)
        claim = await self._claim(pod.namespace, name)
        if source is None and not _owned(claim, pod):
            raise NotProcessed(
                f"PVC {pod.namespace}/{name} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"
            )
        bound = await self._volume(claim, pod.namespace, name, read_only=bool((source or {}).get("readOnly")))
        mode, mounts, devices = bound.spec.get("volumeMode") or "Filesystem", *_uses(pod)
        for field, names, expected in (("volumeMounts", mounts, "Filesystem"), ("volumeDevices", devices, "Block")):
            if volume.name in names and mode != expected:
                raise NotProcessed(f"volume {volume.name} has volumeMode {mode}, but is specified in {field}")
        return bound

    async def _claim(self, namespace: str, name: str) -> Object:
        try:
            claim = await self._api.get(CLAIMS, name, namespace)
        except (ApiError, ClientError) as error:
            raise _failed(namespace, name, f"failed to fetch PVC from API server: {error}") from error
        meta = claim["metadata"]
        if meta.get("deletionTimestamp") and PROTECTION not in (meta.get("finalizers") or ()):
            raise _failed(namespace, name, "PVC is being deleted")
        if (claim.get("status") or {}).get("phase") != "Bound":
            raise _failed(namespace, name, "PVC is not bound")
        if not (claim.get("spec") or {}).get("volumeName"):
            raise _failed(namespace, name, "PVC has empty pvc.Spec.VolumeName")
        return claim

    async def _volume(self, claim: Object, namespace: str, name: str, *, read_only: bool) -> BoundVolume:
        volume_name, uid = claim["spec"]["volumeName"], claim["metadata"].get("uid", "")
        try:
            volume = await self._api.get(VOLUMES, volume_name)
        except (ApiError, ClientError) as error:
            message = f"failed to fetch PV {volume_name} from API server: {error}"
            raise _failed(namespace, name, message) from error
        spec = volume.get("spec") or {}
        reference = spec.get("claimRef")
        if reference is None:
            message = "it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
            raise _failed(namespace, name, f"found PV object {volume_name} but {message}")
        if reference.get("uid", "") != uid:
            message = f"its pv.Spec.ClaimRef.UID {reference.get('uid', '')} does not point to claim.UID {uid}"
            raise _failed(namespace, name, f"found PV object {volume_name} but {message}")
        return BoundVolume(
            name=volume_name,
            spec=spec,
            annotations=volume["metadata"].get("annotations") or {},
            claim=claim,
            read_only=read_only,
        )


def claim_name(pod: Pod, volume: Volume) -> str:
    """The claim of a volume; that of an ephemeral volume is named after the pod and the volume."""
    source = volume.persistent_volume_claim
    return f"{pod.name}-{volume.name}" if source is None else str(source.get("claimName", ""))


def is_used(pod: Pod, volume: Volume) -> bool:
    """Whether a container mounts the volume or has it as a device; others are not set up."""
    return any(volume.name in names for names in _uses(pod))


def _uses(pod: Pod) -> tuple[set[str], set[str]]:
    """Names of the volumes in volumeMounts and in volumeDevices."""
    containers: tuple[Container, ...] = tuple(pod.spec.every_container)
    return (
        {mount.name for container in containers for mount in container.volume_mounts},
        {device.name for container in containers for device in container.volume_devices},
    )


def _owned(claim: Object, pod: Pod) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == pod.uid for owner in owners)


def _failed(namespace: str, name: str, reason: str) -> NotProcessed:
    return NotProcessed(f"error processing PVC {namespace}/{name}: {reason}")
