"""Protects claims that pods use and volumes that are bound from being removed, by finalizers.

The API server adds the finalizers to new objects (StorageObjectInUseProtection). These controllers remove them from a
deleted object when nothing uses it any more, and add them where they are missing.
"""

from typing import ClassVar

from podwire.controllers.context import Context
from podwire.controllers.kinds import PODS, VOLUME_CLAIMS, VOLUMES
from podwire.controllers.metadata import PartialObject
from podwire.controllers.reconciler import Reconciler
from podwire.controllers.volumes.claim_users import ClaimUsers
from podwire.objects.persistent_volumes import CLAIM_PROTECTION, VOLUME_PROTECTION, claims_of_pod, is_made_for
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object


def uses(pod: Object, claim: Object) -> bool:
    """Returns whether a pod keeps a claim from being removed: it is on a node, finished or not.

    An ephemeral claim is released as soon as its pod is being removed: the pod owns it, and each would wait for the
    other.
    """
    spec, meta = pod["spec"], pod["metadata"]
    if not spec.get("nodeName"):
        return False
    shut_down = bool(meta.get("deletionTimestamp")) and meta.get("deletionGracePeriodSeconds") == 0
    for name, ephemeral in claims_of_pod(meta["name"], spec.get("volumes") or ()):
        if name == claim["metadata"]["name"] and (not ephemeral or (not shut_down and is_made_for(claim, meta["uid"]))):
            return True
    return False


class _Protection(Reconciler):
    finalizer: ClassVar[str]
    workers: ClassVar[int] = 2

    async def in_use(self, object_: Object) -> bool:
        raise NotImplementedError

    async def reconcile(self, owner: PartialObject) -> None:
        protected = self.finalizer in owner.metadata.finalizers
        if owner.deleting == protected:
            object_ = owner.object()
            finalizers = list(owner.metadata.finalizers)
            if not owner.deleting:
                finalizers.append(self.finalizer)
            elif await self.in_use(object_):
                return
            else:
                finalizers.remove(self.finalizer)
            metadata = {**object_["metadata"], "finalizers": finalizers}
            try:
                await self.api.replace({**object_, "metadata": metadata})
            except ApiError as error:
                if error.code != 404:
                    raise


class ClaimProtection(_Protection):
    name: ClassVar[str] = "persistentvolumeclaim-protection-controller"
    kind: ClassVar[Kind] = VOLUME_CLAIMS
    dependents: ClassVar[tuple[Kind, ...]] = (PODS,)
    finalizer: ClassVar[str] = CLAIM_PROTECTION

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._users = ClaimUsers(context.graph)

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        for namespace, name in self._users.on_change(before, now):
            claim = self.graph.find(VOLUME_CLAIMS, name, namespace)
            if claim is not None and claim.deleting:
                self.enqueue(claim.uid)

    async def in_use(self, object_: Object) -> bool:
        """The server is asked, too: a pod that was just created may not have been reported."""
        namespace, name = object_["metadata"]["namespace"], object_["metadata"]["name"]
        if any(uses(pod.object(), object_) for pod in self._users.pods((namespace, name))):
            return True
        pods = await self.api.list(PODS, Scope(namespace=namespace))
        return any(uses(pod, object_) for pod in pods.items)


class VolumeProtection(_Protection):
    name: ClassVar[str] = "persistentvolume-protection-controller"
    kind: ClassVar[Kind] = VOLUMES
    finalizer: ClassVar[str] = VOLUME_PROTECTION

    async def in_use(self, object_: Object) -> bool:
        return (object_.get("status") or {}).get("phase") == "Bound"
