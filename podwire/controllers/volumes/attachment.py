"""persistentvolume-attach-detach-controller: requests the attachment of CSI volumes to the nodes of their pods.

A VolumeAttachment is created for each node and volume whose driver has to attach it (`attachRequired`, the default), as
soon as a pod with that volume is on the node, and deleted after the last such pod. The driver's external-attacher acts
on it and writes its status; kubelets wait for that. Volumes of other types need no attachment.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from podwire.controllers.context import Context
from podwire.controllers.kinds import ATTACHMENTS, CSI_DRIVERS, PODS, VOLUME_CLAIMS, VOLUMES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.pod_control import reference_to
from podwire.controllers.timers import Timers
from podwire.controllers.volumes.claim_users import ClaimUsers
from podwire.controllers.work_queue import WorkQueue
from podwire.objects.persistent_volumes import is_fully_bound
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

Key = tuple[str, str]
"""The names of a volume and a node."""


def attachment_name(driver: str, handle: str, node: str) -> str:
    """Returns the name that kubelets look up: of the volume's handle, the driver and the node."""
    return f"csi-{hashlib.sha256(f'{handle}{driver}{node}'.encode()).hexdigest()}"


def is_attached_by(volume: Mapping[str, Any], driver: Mapping[str, Any] | None) -> bool:
    """Returns whether a volume has to be attached: a CSI volume, unless its driver says that it needs none."""
    if not volume["spec"].get("csi"):
        return False
    return driver is None or (driver.get("spec") or {}).get("attachRequired") is not False


def attachment(volume: Mapping[str, Any], node: str) -> Object:
    source = volume["spec"]["csi"]
    name = volume["metadata"]["name"]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(source["driver"], source["volumeHandle"], node)},
        "spec": {"attacher": source["driver"], "nodeName": node, "source": {"persistentVolumeName": name}},
    }


class AttachDetach:
    name: ClassVar[str] = "persistentvolume-attach-detach-controller"
    resources: ClassVar = frozenset(map(resource_of, (VOLUMES, VOLUME_CLAIMS, PODS, ATTACHMENTS, CSI_DRIVERS)))

    def __init__(self, context: Context) -> None:
        self._api, self._graph, self._limits = context.api, context.graph, context.limits
        self._recorder = Recorder(context.api, context.clock, component="attachdetach-controller")
        self._queue: WorkQueue[Key] = WorkQueue("persistentvolume-attach-detach", self._reconcile, workers=2)
        self._timers: Timers[Key] = Timers(context.clock, self._report)
        self._users = ClaimUsers(context.graph)

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(PODS):
            node = (latest.pod.node_name if latest.pod else "") or ""
            for claim in self._users.on_change(before, now):
                if node and (volume := self._volume_of(*claim)):
                    self._enqueue(volume, node)
        elif latest.resource == resource_of(VOLUME_CLAIMS):
            if now is not None and (volume := self._volume_of(now.namespace, now.name)):
                for node in self._nodes_of((now.namespace, now.name)):
                    self._enqueue(volume, node)
        elif latest.resource == resource_of(ATTACHMENTS):
            spec = latest.object()["spec"]
            self._enqueue((spec.get("source") or {}).get("persistentVolumeName") or "", spec.get("nodeName") or "")
        elif self._graph.complete:
            self.on_synced()

    def _enqueue(self, volume: str, node: str) -> None:
        if self._graph.complete and volume:
            self._queue.add((volume, node))

    def _volume_of(self, namespace: str, name: str) -> str:
        seen = self._graph.find(VOLUME_CLAIMS, name, namespace)
        claim = seen.object() if seen is not None else None
        return str(claim["spec"]["volumeName"]) if claim is not None and is_fully_bound(claim) else ""

    def _nodes_of(self, claim: tuple[str, str]) -> set[str]:
        return {pod.pod.node_name for pod in self._pods_of(claim) if pod.pod is not None}

    def _pods_of(self, claim: tuple[str, str]) -> Iterator[PartialObject]:
        """Yields the pods on nodes that use a claim; one that has finished needs no volume any more."""
        for pod in self._users.pods(claim):
            if pod.on_node:
                yield pod

    def on_synced(self) -> None:
        for claim in self._graph.everywhere(VOLUME_CLAIMS):
            self.on_change(claim, claim)
        for existing in self._graph.everywhere(ATTACHMENTS):
            self.on_change(existing, existing)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self._timers.run())
            parts.create_task(self._recorder.run())

    async def _reconcile(self, key: Key) -> None:
        name, node = key
        seen = self._graph.find(VOLUMES, name)
        if seen is None:
            return
        volume = seen.object()
        driver = self._graph.find(CSI_DRIVERS, (volume["spec"].get("csi") or {}).get("driver") or "")
        if not is_attached_by(volume, driver.object() if driver is not None else None):
            return
        wanted = attachment(volume, node)
        existing = self._graph.find(ATTACHMENTS, wanted["metadata"]["name"])
        pods = [pod for pod in self._pods_of(_claim_of(volume)) if pod.pod and pod.pod.node_name == node]
        try:
            if pods and existing is None:
                await self._api.create(wanted)
            elif not pods and existing is not None and not existing.deleting:
                await self._api.delete(ATTACHMENTS, existing.name, uid=existing.uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        self._tell_state(key, pods, existing)

    def _tell_state(self, key: Key, pods: Sequence[PartialObject], existing: PartialObject | None) -> None:
        """Records what pods wait for; a volume that is never attached is reported from time to time."""
        status = (existing.object().get("status") or {}) if existing is not None else {}
        if not pods or status.get("attached"):
            self._timers.cancel(key)
            text = f'AttachVolume.Attach succeeded for volume "{key[0]}" '
            for pod in pods:
                self._recorder.tell(reference_to(pod.object()), NORMAL, "SuccessfulAttachVolume", text)
            return
        if why := (status.get("attachError") or {}).get("message"):
            self._tell(key, why)
        self._timers.set(key, self._timers.now() + self._limits.attach_timeout)

    def _report(self, key: Key) -> None:
        seen = self._graph.find(VOLUMES, key[0])
        if seen is not None:
            source = seen.object()["spec"].get("csi") or {}
            waited = f"timed out waiting for external-attacher of {source.get('driver')} CSI driver"
            self._tell(key, f"{waited} to attach volume {source.get('volumeHandle')}")
            self._queue.add(key)

    def _tell(self, key: Key, why: str) -> None:
        """Records an event at each pod that waits for the volume on the node."""
        seen = self._graph.find(VOLUMES, key[0])
        for pod in self._pods_of(_claim_of(seen.object())) if seen is not None else ():
            if pod.pod is not None and pod.pod.node_name == key[1]:
                text = f'AttachVolume.Attach failed for volume "{key[0]}" : {why}'
                self._recorder.tell(reference_to(pod.object()), WARNING, "FailedAttachVolume", text)


def _claim_of(volume: Mapping[str, Any]) -> tuple[str, str]:
    reference = volume["spec"].get("claimRef") or {}
    return str(reference.get("namespace") or ""), str(reference.get("name") or "")
