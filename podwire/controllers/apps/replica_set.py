"""ReplicaSet and ReplicationController: as many pods of a template as the spec says."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from podwire.controllers.apps.replica_decisions import (
    candidate,
    neighbours_by_node,
    next_available,
    pods_to_delete,
    replacement_delay,
    replica_status,
)
from podwire.controllers.kinds import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from podwire.controllers.metadata import PartialObject
from podwire.controllers.pod_control import BURST, delete_all, namespace_is_terminating, pod_of, slow_start
from podwire.controllers.reconciler import Reconciler
from podwire.objects import selectors
from podwire.objects.selectors import LabelSelector
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object


class ReplicaSets(Reconciler):
    """Creates pods that are missing, deletes surplus ones, and keeps the status."""

    name: ClassVar[str] = "replicaset-controller"
    kind: ClassVar[Kind] = REPLICA_SETS
    dependents: ClassVar[tuple[Kind, ...]] = (PODS,)
    workers: ClassVar[int] = 5
    counts_terminating: ClassVar[bool] = True

    async def reconcile(self, owner: PartialObject) -> None:
        """1. Adopt and release pods.  2. Create or delete some, unless earlier ones were not reported yet.  3. Write
        the status.  4. Come back when a ready pod becomes available."""
        set_ = owner.object()
        selector = self.selector_of(set_["spec"])
        candidates = self.own_and_orphaned(owner, PODS)
        active = await self.adoption.settle(
            owner,
            [pod for pod in candidates if pod.active],
            lambda pod: selector.matches(pod.labels),
        )
        failure: Exception | None = None
        if not self.expectations.satisfied(owner.uid):
            self.enqueue_after(owner.uid, self.expectations.expires_in(owner.uid))
        elif not owner.deleting:
            replicas = set_["spec"].get("replicas") or 0
            delay = replacement_delay(candidates, replicas, self.clock.wall()) if len(active) < replicas else 0.0
            if delay:
                self.enqueue_after(owner.uid, delay)
            else:
                failure = await self._scale(set_, owner, active)
        now = self.clock.wall()
        status = replica_status(set_, active, self._terminating(candidates, selector), _message(failure), now)
        await self.update_status(set_, status)
        if failure is not None:
            raise failure
        wait = next_available(active, set_["spec"].get("minReadySeconds") or 0, now)
        if wait is not None:
            self.enqueue_after(owner.uid, wait)

    def _terminating(self, candidates: Sequence[PartialObject], selector: LabelSelector) -> int | None:
        if not self.counts_terminating:
            return None
        return sum(
            pod.deleting
            and (pod.pod is None or pod.pod.phase not in ("Succeeded", "Failed"))
            and pod.controller is not None
            and selector.matches(pod.labels)
            for pod in candidates
        )

    async def _scale(self, set_: Object, owner: PartialObject, active: Sequence[PartialObject]) -> Exception | None:
        """Creates or deletes pods; returns the first error."""
        missing = (set_["spec"].get("replicas") or 0) - len(active)
        if missing > 0:
            return await self._create(set_, owner, min(missing, BURST))
        if missing < 0:
            return await self._delete(set_, owner, active, min(-missing, BURST))
        return None

    async def _create(self, set_: Object, owner: PartialObject, count: int) -> Exception | None:
        pod = pod_of(set_["spec"].get("template") or {}, set_)

        async def create(_index: int) -> None:
            try:
                await self.pods.create(pod, set_)
            except ApiError as error:
                if not namespace_is_terminating(error):
                    raise
                self.expectations.created(owner.uid)

        self.expectations.expect(owner.uid, creations=count)
        created, error = await slow_start(count, create)
        self.expectations.created(owner.uid, count - created)
        return error

    async def _delete(
        self, set_: Object, owner: PartialObject, active: Sequence[PartialObject], count: int
    ) -> Exception | None:
        on_node = neighbours_by_node(self._related(owner))
        candidates = [candidate(pod, pod.object(), on_node[pod.pod.node_name if pod.pod else ""]) for pod in active]
        chosen = pods_to_delete(candidates, count, self.clock.wall())

        async def delete(pod: PartialObject) -> None:
            try:
                await self.pods.delete(pod, set_)
            except ApiError as error:
                self.expectations.deleted(owner.uid, pod.uid)
                if error.code not in (404, 409):
                    raise

        self.expectations.expect(owner.uid, deletions=[pod.uid for pod in chosen])
        return await delete_all(chosen, delete)

    def _related(self, owner: PartialObject) -> list[PartialObject]:
        """Returns the pods of all sets that have the same controller."""
        controller = owner.controller
        sets = self.graph.dependents(controller.uid) if controller else [owner]
        return [pod for set_ in sets for pod in self.graph.dependents(set_.uid) if pod.resource == PODS.group_resource]


class ReplicationControllers(ReplicaSets):
    """The same for ReplicationControllers, whose selector is a set of labels."""

    name: ClassVar[str] = "replicationcontroller-controller"
    component: ClassVar[str] = "replication-controller"
    kind: ClassVar[Kind] = REPLICATION_CONTROLLERS
    counts_terminating: ClassVar[bool] = False

    def selector_of(self, spec: Mapping[str, Any]) -> LabelSelector:
        labels = spec.get("selector") or {}
        return selectors.from_labels(labels) if labels else selectors.NOTHING


def _message(error: Exception | None) -> str | None:
    return None if error is None else str(error)
