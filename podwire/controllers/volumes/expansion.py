"""persistentvolume-expander-controller: grows bound claims that request more than their volume has.

A volume of our own provisioner is a directory without a size of its own: the larger number is recorded at the volume
and then at the claim. Volumes of other provisioners are theirs to grow, which an event says.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from podwire.controllers.kinds import VOLUME_CLAIMS, VOLUMES
from podwire.controllers.metadata import PartialObject
from podwire.controllers.pod_control import reference_to
from podwire.controllers.reconciler import Reconciler
from podwire.objects import persistent_volumes as storage
from podwire.protocols.k8sapi.client_side.events import NORMAL
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object


def wants_more(claim: Mapping[str, Any]) -> bool:
    """Returns whether a bound claim requests more than its status shows."""
    status = claim.get("status") or {}
    return status.get("phase") == "Bound" and storage.requested(claim) > storage.amount(status.get("capacity"))


class Expander(Reconciler):
    name: ClassVar[str] = "persistentvolume-expander-controller"
    component: ClassVar[str] = "volume_expand"
    kind: ClassVar[Kind] = VOLUME_CLAIMS
    workers: ClassVar[int] = 2

    async def reconcile(self, owner: PartialObject) -> None:
        claim = owner.object()
        if owner.deleting or not wants_more(claim):
            return
        seen = self.graph.find(VOLUMES, claim["spec"].get("volumeName") or "")
        volume = seen.object() if seen is not None else None
        if volume is None or not storage.is_bound_to(volume, claim):
            return
        if storage.annotations(volume).get(storage.PROVISIONED_BY) != storage.LOCAL_PATH:
            text = "waiting for an external controller to expand this PVC"
            self.recorder.tell(reference_to(claim), NORMAL, "ExternalExpanding", text)
            return
        try:
            await self._grow(claim, volume)
        except ApiError as error:
            if error.code != 404:
                raise

    async def _grow(self, claim: Object, volume: Object) -> None:
        """The volume is written first: a claim never shows more than its volume has."""
        size = {"storage": str(storage.requested(claim))}
        if storage.capacity(volume) < storage.requested(claim):
            spec = {**volume["spec"], "capacity": {**(volume["spec"].get("capacity") or {}), **size}}
            await self.api.replace({**volume, "spec": spec})
        status = {**claim["status"], "capacity": {**(claim["status"].get("capacity") or {}), **size}}
        await self.api.replace({**claim, "status": status}, subresource="status")
