"""ephemeral-volume-controller: creates the claims of a pod's generic ephemeral volumes.

A claim is named after pod and volume and owned by the pod: the garbage collector deletes it with the pod.
"""

from typing import Any, ClassVar

from podwire.controllers.adoption import controller_reference
from podwire.controllers.kinds import PODS, VOLUME_CLAIMS
from podwire.controllers.metadata import PartialObject
from podwire.controllers.pod_control import reference_to
from podwire.controllers.reconciler import Reconciler
from podwire.objects.persistent_volumes import ephemeral_claim_name, is_made_for, not_made_for
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object


def claim_of(pod: Object, volume: Object) -> Object:
    """Returns the claim of an ephemeral volume, as it is created."""
    template: dict[str, Any] = volume["ephemeral"].get("volumeClaimTemplate") or {}
    given = template.get("metadata") or {}
    kept = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
    metadata = {
        "name": ephemeral_claim_name(pod["metadata"]["name"], volume["name"]),
        "namespace": pod["metadata"]["namespace"],
        **kept,
        "ownerReferences": [controller_reference({"apiVersion": "v1", "kind": "Pod", **pod})],
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template.get("spec") or {},
    }


class EphemeralVolumes(Reconciler):
    """Reconciles a pod with ephemeral volumes when it is created, and when one of its claims is deleted."""

    name: ClassVar[str] = "ephemeral-volume-controller"
    component: ClassVar[str] = "ephemeral_volume"
    kind: ClassVar[Kind] = PODS
    dependents: ClassVar[tuple[Kind, ...]] = (VOLUME_CLAIMS,)

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.kind.kind == PODS.kind:
            if (before is None or before is now) and now is not None and b'"ephemeral"' in now.json:
                self.enqueue(now.uid)
            elif now is None:
                self.forget(latest.uid)
        elif now is None and latest.controller is not None:
            self.enqueue(latest.controller.uid)

    def on_synced(self) -> None:
        for pod in self.graph.everywhere(PODS):
            if b'"ephemeral"' in pod.json:
                self.queue.add(pod.uid)

    async def reconcile(self, owner: PartialObject) -> None:
        if owner.deleting:
            return
        pod = owner.object()
        for volume in pod["spec"].get("volumes") or ():
            if volume.get("ephemeral") is not None and (why := await self._ensure(pod, volume)):
                text = f"ephemeral volume {volume['name']}: {why}"
                self.recorder.tell(reference_to(pod), WARNING, "FailedBinding", text)
                self.enqueue_after(owner.uid, 10.0)
                return

    async def _ensure(self, pod: Object, volume: Object) -> str:
        """Returns why the volume has no claim of its own; empty if it has."""
        claim = claim_of(pod, volume)
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        seen = self.graph.find(VOLUME_CLAIMS, name, namespace)
        found = seen.object() if seen is not None else None
        if found is None:
            try:
                await self.api.create(claim)
            except ApiError as error:
                if error.code != 409:
                    return f"create PVC {name}: {error.message}"
                found = await self.api.get(VOLUME_CLAIMS, name, namespace)
        if found is not None and not is_made_for(found, pod["metadata"]["uid"]):
            return not_made_for(found, f"{namespace}/{pod['metadata']['name']}")
        return ""
