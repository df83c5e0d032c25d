"""local-path-provisioner-controller: volumes that are directories on the node of their first pod.

It is a provisioner like any other: the binder asks for a volume by an annotation at the claim, the scheduler names the
node, and this controller answers with a PersistentVolume whose node affinity is that node. The kubelet's process
creates the directory, and removes it after the volume was deleted (`kubelet/local_path.py`); a finalizer at the volume
waits for that. If the node does not exist any more, the finalizer is removed here.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from podwire.controllers.context import Context
from podwire.controllers.kinds import NODES, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.pod_control import reference_to
from podwire.controllers.reconciler import Reconciler
from podwire.controllers.work_queue import WorkQueue
from podwire.objects import persistent_volumes as storage
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

_MODES = ("ReadWriteOnce", storage.SINGLE_POD)


def is_ours(claim: Mapping[str, Any]) -> bool:
    """Returns whether a claim waits for a volume of this provisioner."""
    marks = storage.annotations(claim)
    asked = any(marks.get(mark) == storage.LOCAL_PATH for mark in storage.STORAGE_PROVISIONERS)
    return asked and not claim["spec"].get("volumeName") and not claim["metadata"].get("deletionTimestamp")


def why_refused(claim: Mapping[str, Any], class_: Mapping[str, Any]) -> str:
    """Returns why no directory can be the volume of a claim; empty if one can."""
    spec = claim["spec"]
    if not storage.waits_for_consumer(class_):
        return "volumeBindingMode must be WaitForFirstConsumer: a directory is on one node, the one of the first pod"
    if class_.get("parameters"):
        return f"unknown parameters: {', '.join(sorted(class_['parameters']))}"
    if class_.get("mountOptions"):
        return "mountOptions are not supported: a directory is not mounted"
    if (spec.get("volumeMode") or "Filesystem") != "Filesystem":
        return f"volumeMode {spec['volumeMode']} is not supported"
    if unsupported := [mode for mode in spec.get("accessModes") or () if mode not in _MODES]:
        return f"access mode {unsupported[0]} is not supported: a directory is on one node"
    if spec.get("selector"):
        return "claim.Spec.Selector is not supported"
    if spec.get("dataSource") or spec.get("dataSourceRef"):
        return "data sources are not supported"
    if spec.get("volumeAttributesClassName"):
        return "volume attributes classes are not supported"
    return ""


def volume_for(claim: Mapping[str, Any], class_: Mapping[str, Any], hostname: str) -> Object:
    """Returns the volume of a claim: a directory that is named after it, on a node with this hostname."""
    name = f"pvc-{claim['metadata']['uid']}"
    here = {"key": storage.HOSTNAME, "operator": "In", "values": [hostname]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {storage.PROVISIONED_BY: storage.LOCAL_PATH},
            "finalizers": [storage.LOCAL_PATH],
        },
        "spec": {
            "capacity": {"storage": str(storage.requested(claim))},
            "accessModes": list(claim["spec"].get("accessModes") or ()),
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": class_.get("reclaimPolicy") or "Delete",
            "storageClassName": class_["metadata"]["name"],
            "claimRef": storage.claim_reference(claim),
            "local": {"path": f"{storage.LOCAL_PATH_ROOT}/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def is_to_be_deleted(volume: Mapping[str, Any]) -> bool:
    """Returns whether a volume of ours is released, and its policy is to delete it."""
    released = (volume.get("status") or {}).get("phase") == "Released"
    policy = volume["spec"].get("persistentVolumeReclaimPolicy")
    return _provisioned_here(volume) and released and policy == "Delete" and not _deleting(volume)


def is_lost(volume: Mapping[str, Any], hostnames: Sequence[str]) -> bool:
    """Returns whether a deleted volume waits for a node that does not exist."""
    waits = storage.LOCAL_PATH in (volume["metadata"].get("finalizers") or ())
    return _deleting(volume) and waits and storage.hostname_of(volume) not in hostnames


def _provisioned_here(volume: Mapping[str, Any]) -> bool:
    return storage.annotations(volume).get(storage.PROVISIONED_BY) == storage.LOCAL_PATH


def _deleting(volume: Mapping[str, Any]) -> bool:
    return bool(volume["metadata"].get("deletionTimestamp"))


class LocalPathProvisioner(Reconciler):
    name: ClassVar[str] = "local-path-provisioner-controller"
    component: ClassVar[str] = storage.LOCAL_PATH
    kind: ClassVar[Kind] = VOLUME_CLAIMS
    dependents: ClassVar[tuple[Kind, ...]] = (VOLUMES, NODES, STORAGE_CLASSES)
    workers: ClassVar[int] = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._volumes: WorkQueue[str] = WorkQueue("local-path-volumes", self._reconcile_volume, workers=2)

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None or not self.graph.complete:
            return
        if latest.resource == resource_of(VOLUMES):
            if now is not None:
                self._volumes.add(now.uid)
        elif latest.resource == resource_of(NODES):
            if before is None or now is None:
                self.on_synced()
        elif now is not None:
            for claim in self.graph.everywhere(VOLUME_CLAIMS):
                self.queue.add(claim.uid)

    def on_synced(self) -> None:
        super().on_synced()
        for volume in self.graph.everywhere(VOLUMES):
            self._volumes.add(volume.uid)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(super().run())
            parts.create_task(self._volumes.run())

    async def reconcile(self, owner: PartialObject) -> None:
        claim = owner.object()
        node = storage.annotations(claim).get(storage.SELECTED_NODE)
        seen = self.graph.find(STORAGE_CLASSES, storage.class_of_claim(claim))
        if not is_ours(claim) or seen is None:
            return
        class_ = seen.object()
        if (why := why_refused(claim, class_)) or node is None:
            if why:
                text = f'failed to provision volume with StorageClass "{class_["metadata"]["name"]}": {why}'
                self.recorder.tell(reference_to(claim), WARNING, "ProvisioningFailed", text)
                await self._choose_again(claim)
            return
        seen = self.graph.find(NODES, node)
        if seen is None:
            text = f'failed to get target node: node "{node}" not found'
            self.recorder.tell(reference_to(claim), WARNING, "ProvisioningFailed", text)
            await self._choose_again(claim)
            return
        volume = volume_for(claim, class_, seen.labels.get(storage.HOSTNAME, node))
        name = volume["metadata"]["name"]
        try:
            await self.api.create(volume)
        except ApiError as error:
            if error.code != 409:
                raise
            return
        log.info("volume was provisioned", extra={"claim": str(owner), "volume": name, "node": node})
        text = f"Successfully provisioned volume {name}"
        self.recorder.tell(reference_to(claim), NORMAL, "ProvisioningSucceeded", text)

    async def _choose_again(self, claim: Object) -> None:
        """Removes the choice of a node, so that the scheduler does not wait for a volume in vain."""
        marks = {key: text for key, text in storage.annotations(claim).items() if key != storage.SELECTED_NODE}
        if marks != storage.annotations(claim):
            await self.api.replace({**claim, "metadata": {**claim["metadata"], "annotations": marks}})

    async def _reconcile_volume(self, uid: str) -> None:
        seen = self.graph.node(uid)
        volume = seen.object() if seen is not None else None
        if volume is None or not _provisioned_here(volume):
            return
        try:
            if is_to_be_deleted(volume):
                await self.api.delete(VOLUMES, volume["metadata"]["name"], uid=uid)
            elif is_lost(volume, self._hostnames()):
                text = f'node "{storage.hostname_of(volume)}" does not exist: its directory was not removed'
                self.recorder.tell(reference_to(volume), WARNING, "VolumeFailedDelete", text)
                kept = [row for row in volume["metadata"]["finalizers"] if row != storage.LOCAL_PATH]
                await self.api.replace({**volume, "metadata": {**volume["metadata"], "finalizers": kept}})
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _hostnames(self) -> list[str]:
        return [node.labels.get(storage.HOSTNAME, node.name) for node in self.graph.everywhere(NODES)]
