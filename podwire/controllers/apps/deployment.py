"""Deployment: replaces the pods of one template by those of the next, through ReplicaSets."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from podwire.controllers.apps import deployment_decisions as decisions
from podwire.controllers.apps import deployment_status as statuses
from podwire.controllers.apps.conditions import condition
from podwire.controllers.apps.deployment_decisions import replicas
from podwire.controllers.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.pod_control import namespace_is_terminating, reference_to
from podwire.controllers.reconciler import Reconciler
from podwire.controllers.work_queue import NotYet
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object


class Deployments(Reconciler):
    """Creates a ReplicaSet per template and moves pods from the old ones to the new one."""

    name: ClassVar[str] = "deployment-controller"
    kind: ClassVar[Kind] = DEPLOYMENTS
    dependents: ClassVar[tuple[Kind, ...]] = (REPLICA_SETS, PODS)
    workers: ClassVar[int] = 5

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        """A ReplicaSet changed, or the last pod of one is gone: Recreate waits for that."""
        latest = now or before
        if latest is None or latest.resource != resource_of(PODS):
            super().on_dependent(before, now)
        elif now is None and latest.controller is not None:
            set_ = self.graph.node(latest.controller.uid)
            if set_ is not None and set_.controller is not None:
                self.enqueue(set_.controller.uid)

    async def reconcile(self, owner: PartialObject) -> None:
        """Reconciles one Deployment.

        1. Adopt and release ReplicaSets.  2. One that is being deleted gets its status only; a paused or scaled one
        only sizes; a request for an old revision is turned into a new template.  3. Otherwise roll out.
        """
        deployment = owner.object()
        selector = self.selector_of(deployment["spec"])
        if selector.everything:
            await self._refuse(deployment)
            return
        sets = [set_.object() for set_ in await self.claimed(owner, REPLICA_SETS, selector)]
        now = self.clock.wall()
        new = decisions.find_new(deployment, sets)
        old = [set_ for set_ in sets if set_ is not new]
        if owner.deleting:
            await self.update_status(deployment, statuses.counted(deployment, new, old, now))
            return
        current = statuses.with_pause_condition(deployment, now)
        if new is not None:
            new, current = await self._synced(current, new, old)
        if deployment["spec"].get("paused"):
            await self._resize(current, new, old)
            await self._delete_sets(current, old)
            await self._write(deployment, current, statuses.counted(current, new, old, now))
        elif decisions.rollback_to(deployment) is not None:
            await self._roll_back(deployment, sets)
        elif decisions.was_scaled(deployment, sets):
            await self._resize(current, new, old)
            await self._write(deployment, current, statuses.counted(current, new, old, now))
        elif decisions.is_rolling(deployment):
            await self._roll(deployment, current, new, old)
        else:
            await self._recreate(deployment, current, new, old)

    async def _refuse(self, deployment: Object) -> None:
        message = "This deployment is selecting all pods. A non-empty selector is required."
        self.recorder.tell(reference_to(deployment), WARNING, "SelectingAll", message)
        generation = deployment["metadata"].get("generation")
        await self.update_status(deployment, {**(deployment.get("status") or {}), "observedGeneration": generation})

    async def _synced(self, deployment: Object, new: Object, old: Sequence[Object]) -> tuple[Object, Object]:
        """Gives the new set its revision and annotations, and the Deployment the set's revision."""
        changed = decisions.with_revision(deployment, new, old)
        if changed is not new:
            new = await self.api.replace(changed)
        name = new["metadata"]["name"]
        if condition(deployment.get("status") or {}, statuses.PROGRESSING) is None:
            message = f'Found new replica set "{name}"'
            deployment = statuses.progressing(deployment, "True", "FoundNewReplicaSet", message, self.clock.wall())
        return new, _with_revision(deployment, str(decisions.revision(new)))

    async def _roll(self, stored: Object, deployment: Object, new: Object | None, old: Sequence[Object]) -> None:
        """Rolls out: first grow the new set, then shrink old ones, then remove those beyond the history limit."""
        if new is None:
            new, deployment = await self._create(stored, deployment, old)
        size = decisions.new_set_size(deployment, new, old)
        if size != replicas(new):
            new = await self._scale(deployment, new, size)
        else:
            sizes = decisions.old_set_sizes(deployment, new, old)
            old = [await self._scale_by(deployment, set_, sizes) for set_ in old]
            if not sizes and statuses.complete(deployment, deployment.get("status") or {}):
                await self._delete_sets(deployment, old)
        await self._finish(stored, deployment, new, old)

    async def _recreate(self, stored: Object, deployment: Object, new: Object | None, old: Sequence[Object]) -> None:
        """Recreates: stop all old pods, wait until they are gone, then start the new ones."""
        running = decisions.active(old)
        if running:
            sizes = {set_["metadata"]["name"]: 0 for set_ in running}
            old = [await self._scale_by(deployment, set_, sizes) for set_ in old]
        elif not self._old_pods(old):
            if new is None:
                new, deployment = await self._create(stored, deployment, old)
            if replicas(new) != replicas(deployment):
                new = await self._scale(deployment, new, replicas(deployment))
            if statuses.complete(deployment, deployment.get("status") or {}):
                await self._delete_sets(deployment, old)
        await self._finish(stored, deployment, new, old)

    def _old_pods(self, old: Sequence[Object]) -> bool:
        """Returns whether pods of old sets still run."""
        return any(decisions.status_count(set_, "replicas") for set_ in old) or any(
            pod.pod is None or pod.pod.phase not in ("Succeeded", "Failed")
            for set_ in old
            for pod in self.graph.dependents(set_["metadata"]["uid"])
            if pod.resource == resource_of(PODS)
        )

    async def _finish(self, stored: Object, deployment: Object, new: Object | None, old: Sequence[Object]) -> None:
        now = self.clock.wall()
        status = statuses.rolled_out(deployment, new, old, now)
        await self._write(stored, deployment, status)
        wait = statuses.deadline_in(deployment, status, now)
        if wait is not None:
            self.enqueue_after(stored["metadata"]["uid"], wait)

    async def _write(self, stored: Object, deployment: Object, status: Object) -> None:
        """Writes the status, and the revision with it."""
        if decisions.annotations(deployment) != decisions.annotations(stored):
            await self.api.replace({**deployment, "status": status}, subresource="status")
        else:
            await self.update_status(stored, status)

    async def _create(self, stored: Object, deployment: Object, old: Sequence[Object]) -> tuple[Object, Object]:
        """Creates the set of the Deployment's template; a name that another set has changes the hash."""
        wanted = decisions.new_set(deployment, old)
        name, now = wanted["metadata"]["name"], self.clock.wall()
        try:
            new = await self.api.create(wanted)
        except ApiError as error:
            if error.reason is Reason.ALREADY_EXISTS:
                return await self._existing(stored, deployment, name), deployment
            if not namespace_is_terminating(error):
                message = f'Failed to create new replica set "{name}": {error.message}'
                failed = statuses.progressing(deployment, "False", "ReplicaSetCreateError", message, now)
                self.recorder.tell(reference_to(deployment), WARNING, "ReplicaSetCreateError", message)
                await self.update_status(stored, failed.get("status") or {})
            raise
        if replicas(new):
            self._tell_scaling(deployment, name, 0, replicas(new))
        message = f'Created new replica set "{name}"'
        deployment = statuses.progressing(deployment, "True", "NewReplicaSetCreated", message, now)
        return new, _with_revision(deployment, str(decisions.revision(new)))

    async def _existing(self, stored: Object, deployment: Object, name: str) -> Object:
        """Returns our own set of that name; if it is not ours, counts a collision and starts again."""
        meta = deployment["metadata"]
        found = await self.api.get(REPLICA_SETS, name, meta["namespace"])
        owners = found["metadata"].get("ownerReferences") or ()
        ours = any(owner.get("controller") and owner["uid"] == meta["uid"] for owner in owners)
        if ours and decisions.same_template(deployment["spec"]["template"], found["spec"]["template"]):
            return found
        status = stored.get("status") or {}
        await self.update_status(stored, {**status, "collisionCount": (status.get("collisionCount") or 0) + 1})
        raise NotYet

    async def _resize(self, deployment: Object, new: Object | None, old: Sequence[Object]) -> None:
        sizes = decisions.proportional_sizes(deployment, new, old)
        for set_ in (*([new] if new is not None else []), *old):
            await self._scale_by(deployment, set_, sizes)

    async def _scale_by(self, deployment: Object, set_: Object, sizes: Mapping[str, int]) -> Object:
        size = sizes.get(set_["metadata"]["name"])
        return set_ if size is None else await self._scale(deployment, set_, size)

    async def _scale(self, deployment: Object, set_: Object, size: int) -> Object:
        """Changes the size of a set, and the annotations by which a later scaling is recognized."""
        before, name = replicas(set_), set_["metadata"]["name"]
        changed = decisions.with_size_annotations(deployment, set_)
        if size == before and decisions.annotations(changed) == decisions.annotations(set_):
            return set_
        scaled = await self.api.replace({**changed, "spec": {**set_["spec"], "replicas": size}})
        if size != before:
            self._tell_scaling(deployment, name, before, size)
        return scaled

    def _tell_scaling(self, deployment: Object, name: str, before: int, size: int) -> None:
        direction = "up" if size > before else "down"
        message = f"Scaled {direction} replica set {name} from {before} to {size}"
        self.recorder.tell(reference_to(deployment), NORMAL, "ScalingReplicaSet", message)

    async def _delete_sets(self, deployment: Object, old: Sequence[Object]) -> None:
        for set_ in decisions.sets_to_delete(deployment, old):
            meta = set_["metadata"]
            try:
                await self.api.delete(REPLICA_SETS, meta["name"], meta["namespace"], uid=meta["uid"])
            except ApiError as error:
                if error.code != 404:
                    raise

    async def _roll_back(self, deployment: Object, sets: Sequence[Object]) -> None:
        """Turns the deprecated request for a revision into a new template."""
        wanted = decisions.rollback_to(deployment) or 0
        target = decisions.rollback_target(wanted, sets)
        about, name = reference_to(deployment), deployment["metadata"]["name"]
        changed = decisions.rolled_back(deployment, target)
        await self.api.replace(changed)
        if target is None:
            message = "Unable to find the revision to rollback to." if wanted else "Unable to find last revision."
            self.recorder.tell(about, WARNING, "DeploymentRollbackRevisionNotFound", message)
        elif changed["spec"] is deployment["spec"]:
            message = f'The rollback revision contains the same template as current deployment "{name}"'
            self.recorder.tell(about, WARNING, "DeploymentRollbackTemplateUnchanged", message)
        else:
            message = f'Rolled back deployment "{name}" to revision {decisions.revision(target)}'
            self.recorder.tell(about, NORMAL, "DeploymentRollback", message)


def _with_revision(deployment: Object, revision: str) -> Object:
    given = decisions.annotations(deployment)
    if given.get(decisions.REVISION) == revision:
        return deployment
    meta = {**deployment["metadata"], "annotations": {**given, decisions.REVISION: revision}}
    return {**deployment, "metadata": meta}
