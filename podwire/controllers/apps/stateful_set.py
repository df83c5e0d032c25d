"""StatefulSet: numbered pods with stable names and claims of their own."""

from collections.abc import Sequence
from typing import ClassVar

from podwire.controllers.apps import revisions
from podwire.controllers.apps import stateful_claims as claims
from podwire.controllers.apps import stateful_decisions as decisions
from podwire.controllers.apps.history import Collision, History
from podwire.controllers.apps.replica_decisions import next_available
from podwire.controllers.apps.revisions import REVISION_HASH
from podwire.controllers.context import Context
from podwire.controllers.kinds import PODS, REVISIONS, STATEFUL_SETS, VOLUME_CLAIMS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.pod_control import BURST, delete_all, namespace_is_terminating, reference_to, slow_start
from podwire.controllers.reconciler import Reconciler
from podwire.controllers.work_queue import NotYet
from podwire.objects.selectors import LabelSelector
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object


class StatefulSets(Reconciler):
    """Creates pods and claims in order, replaces pods of old templates, and keeps the history of templates."""

    name: ClassVar[str] = "statefulset-controller"
    kind: ClassVar[Kind] = STATEFUL_SETS
    dependents: ClassVar[tuple[Kind, ...]] = (PODS, REVISIONS, VOLUME_CLAIMS)
    workers: ClassVar[int] = 5

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._history = History(context.api, REVISION_HASH)

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        """A pod changed; or a claim is gone, for which a pod may wait."""
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(PODS):
            super().on_dependent(before, now)
        elif latest.resource == resource_of(VOLUME_CLAIMS) and now is None:
            for owner in self.graph.listed(self.kind, latest.namespace):
                self.enqueue(owner.uid)

    async def reconcile(self, owner: PartialObject) -> None:
        """Reconciles one StatefulSet.

        1. Record the template as a revision.  2. Create, delete and repair pods, unless earlier changes were not
        reported yet.  3. Write the status.  4. Delete surplus revisions.
        """
        set_ = owner.object()
        selector = self.selector_of(set_["spec"])
        pods = await self._members(owner, selector)
        history = revisions.in_order([revision.object() for revision in await self.claimed(owner, REVISIONS, selector)])
        update = await self._update_revision(set_, history)
        name = (set_.get("status") or {}).get("currentRevision")
        current = next((revision for revision in history if revision["metadata"]["name"] == name), update)
        failure: Exception | None = None
        if not self.expectations.satisfied(owner.uid):
            self.enqueue_after(owner.uid, self.expectations.expires_in(owner.uid))
        elif not owner.deleting:
            failure = await self._act(owner, set_, pods, current, update)
        now = self.clock.wall()
        names = current["metadata"]["name"], update["metadata"]["name"]
        collisions = (set_.get("status") or {}).get("collisionCount") or 0
        await self.update_status(set_, decisions.stateful_status(set_, pods, *names, collisions, now))
        in_use = frozenset({*names, *(decisions.revision_of(pod) for pod in pods)})
        spare = [revision for revision in history if revision["metadata"]["name"] not in in_use]
        await self._history.delete(
            revisions.surplus(spare, set_["spec"].get("revisionHistoryLimit"), in_use, REVISION_HASH)
        )
        if failure is not None:
            raise failure
        wait = next_available(pods, set_["spec"].get("minReadySeconds") or 0, now)
        if wait is not None:
            self.enqueue_after(owner.uid, wait)

    async def _members(self, owner: PartialObject, selector: LabelSelector) -> list[PartialObject]:
        """Returns the set's pods: adopted by labels and by their name."""
        return await self.adoption.settle(
            owner,
            self.own_and_orphaned(owner, PODS),
            lambda pod: selector.matches(pod.labels) and decisions.parent_and_ordinal(pod.name)[0] == owner.name,
        )

    async def _update_revision(self, set_: Object, history: Sequence[Object]) -> Object:
        """Returns the revision of the present template: created, or renumbered if an old template came back."""
        data = revisions.template_patch(set_["spec"])
        equal = [revision for revision in history if revision.get("data") == data]
        if equal:
            latest = equal[-1]
            return latest if latest is history[-1] else await self._renumbered(latest, history)
        try:
            return await self._history.create(set_, revisions.next_number(history))
        except Collision as error:
            status = set_.get("status") or {}
            collided = {**status, "collisionCount": (status.get("collisionCount") or 0) + 1}
            await self.update_status(set_, {"replicas": 0, "availableReplicas": 0, **collided})
            raise NotYet from error

    async def _renumbered(self, revision: Object, history: Sequence[Object]) -> Object:
        return await self._history.renumber(revision, revisions.next_number(history))

    async def _act(
        self, owner: PartialObject, set_: Object, pods: Sequence[PartialObject], current: Object, update: Object
    ) -> Exception | None:
        """Takes the next step; returns the first error."""
        plan = decisions.plan(set_, pods, update["metadata"]["name"], self.clock.wall())
        try:
            for pod in plan.check:
                await self._repair(set_, pod)
            for pod in plan.condemned:
                await self._own_claims(set_, pod, scaled_down=True)
        except (ApiError, ClientError) as error:
            return error
        create, delete = plan.create[:BURST], plan.delete[:BURST]
        if not create and not delete:
            return None

        async def create_one(index: int) -> None:
            ordinal = create[index]
            revision = current if decisions.uses_current(set_, ordinal) else update
            await self._create(owner, set_, ordinal, revision)

        async def delete_one(pod: PartialObject) -> None:
            await self._delete(owner, set_, pod)

        self.expectations.expect(owner.uid, creations=len(create), deletions=[pod.uid for pod in delete])
        created, failure = await slow_start(len(create), create_one)
        self.expectations.created(owner.uid, len(create) - created)
        return await delete_all(delete, delete_one) or failure

    async def _create(self, owner: PartialObject, set_: Object, ordinal: int, revision: Object) -> None:
        """Creates the claims of a pod, then the pod."""
        template = {key: value for key, value in revision["data"]["spec"]["template"].items() if key != "$patch"}
        pod = decisions.stateful_pod(set_, template, revision["metadata"]["name"], ordinal)
        name = pod["metadata"]["name"]
        try:
            if claims.policy(set_)[1] == claims.DELETE and self._has_stale_claim(set_, pod, ordinal):
                raise ApiError(Reason.CONFLICT, f"claims of the previous pod {name} are being deleted")
            await self._ensure_claims(set_, name, ordinal)
            await self.api.create(pod)
        except ApiError as error:
            if namespace_is_terminating(error):
                self.expectations.created(owner.uid)
                return
            if error.reason not in (Reason.ALREADY_EXISTS, Reason.CONFLICT):
                self._tell(set_, "Create", name, error)
            raise
        self._tell(set_, "Create", name)

    async def _delete(self, owner: PartialObject, set_: Object, pod: PartialObject) -> None:
        try:
            await self.api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except ApiError as error:
            self.expectations.deleted(owner.uid, pod.uid)
            if error.code in (404, 409):
                return
            self._tell(set_, "Delete", pod.name, error)
            raise
        self._tell(set_, "Delete", pod.name)

    def _tell(self, set_: Object, verb: str, pod: str, error: ApiError | None = None) -> None:
        about = f"{verb} Pod {pod} in StatefulSet {set_['metadata']['name']}"
        if error is None:
            self.recorder.tell(reference_to(set_), NORMAL, f"Successful{verb}", f"{about} successful")
        else:
            message = f"{about} failed error: {error.message}"
            self.recorder.tell(reference_to(set_), WARNING, f"Failed{verb}", message)

    async def _repair(self, set_: Object, pod: PartialObject) -> None:
        """Restores what identifies a pod: its claims and their owners, its labels, its volumes."""
        ordinal = decisions.ordinal_of(pod)
        templates = set_["spec"].get("volumeClaimTemplates")
        if templates:
            if decisions.state(pod).phase == "Pending":
                await self._ensure_claims(set_, pod.name, ordinal)
            await self._own_claims(set_, pod, scaled_down=False)
        if decisions.has_identity(pod) and not templates:
            return
        object_ = pod.object()
        if decisions.has_identity(pod) and decisions.has_storage(set_, object_["spec"], ordinal):
            return
        labels = {**(object_["metadata"].get("labels") or {}), **decisions.identity(pod.name, ordinal)}
        object_["metadata"]["labels"] = labels
        object_["spec"] = decisions.with_storage(set_, object_["spec"], ordinal)
        try:
            await self.api.replace(object_)
        except ApiError as error:
            if error.reason is not Reason.CONFLICT:
                self._tell(set_, "Update", pod.name, error)
            raise
        self._tell(set_, "Update", pod.name)

    def _has_stale_claim(self, set_: Object, pod: Object, ordinal: int) -> bool:
        namespace = set_["metadata"]["namespace"]
        for claim in claims.claims_of(set_, ordinal):
            known = self.graph.find(VOLUME_CLAIMS, claim["metadata"]["name"], namespace)
            if known is not None and claims.is_stale(known.object()["metadata"].get("ownerReferences") or (), pod):
                return True
        return False

    async def _ensure_claims(self, set_: Object, pod: str, ordinal: int) -> None:
        """Creates the missing claims of a pod. Raises ApiError, also while one is being deleted."""
        namespace, about = set_["metadata"]["namespace"], reference_to(set_)
        for claim in claims.claims_of(set_, ordinal):
            name = claim["metadata"]["name"]
            known = self.graph.find(VOLUME_CLAIMS, name, namespace)
            if known is not None and known.deleting:
                raise ApiError(Reason.CONFLICT, f"pvc {name} is being deleted")
            if known is not None:
                continue
            where = f"Pod {pod} in StatefulSet {set_['metadata']['name']}"
            try:
                await self.api.create(claim)
            except ApiError as error:
                if error.reason is Reason.ALREADY_EXISTS:
                    continue
                message = f"Create Claim {name} for {where} failed error: {error.message}"
                self.recorder.tell(about, WARNING, "FailedCreate", message)
                raise
            self.recorder.tell(about, NORMAL, "SuccessfulCreate", f"Create Claim {name} {where} success")

    async def _own_claims(self, set_: Object, pod: PartialObject, *, scaled_down: bool) -> None:
        """Makes claims dependents of the set or of the pod, as the retention policy says."""
        described = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name, "uid": pod.uid}}
        for claim in claims.claims_of(set_, decisions.ordinal_of(pod)):
            known = self.graph.find(VOLUME_CLAIMS, claim["metadata"]["name"], pod.namespace)
            if known is None:
                continue
            object_ = known.object()
            references = object_["metadata"].get("ownerReferences") or []
            wanted = claims.owners(references, set_, described, scaled_down=scaled_down)
            if wanted is None:
                continue
            if claims.has_conflict(references, set_, described):
                message = (
                    f"PersistentVolumeClaim {known.name} has a conflicting OwnerReference that acts as a manging "
                    "controller, the retention policy is ignored for this claim"
                )
                self.recorder.tell(reference_to(set_), WARNING, "ConflictingController", message)
            await self.api.replace({**object_, "metadata": {**object_["metadata"], "ownerReferences": wanted}})
