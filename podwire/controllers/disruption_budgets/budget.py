"""The disruption controller: keeps the status of PodDisruptionBudgets, by which the eviction API decides."""

import asyncio
import logging
from typing import ClassVar

from podwire.controllers.batching import Batches
from podwire.controllers.context import Context
from podwire.controllers.disruption import TARGET
from podwire.controllers.disruption_budgets import budget_decision
from podwire.controllers.kinds import (
    BUDGETS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.own_writes import OwnWrites
from podwire.controllers.pod_control import reference_to
from podwire.controllers.reconciler import Reconciler
from podwire.controllers.timers import Timers
from podwire.controllers.work_queue import WorkQueue
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING, Reference
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, qualified
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

STALE_SECONDS = 120.0
"""Seconds after which the condition DisruptionTarget of a pod that was not deleted is taken back."""


class NoScale(Exception):
    """The desired number of pods cannot be found out; the message is the condition's."""


class BudgetController(Reconciler):
    """Reconciles a budget when it, one of its pods or the scale of their controllers changes."""

    name: ClassVar[str] = "disruption-controller"
    kind: ClassVar[Kind] = BUDGETS
    dependents: ClassVar[tuple[Kind, ...]] = (
        PODS,
        REPLICA_SETS,
        DEPLOYMENTS,
        STATEFUL_SETS,
        REPLICATION_CONTROLLERS,
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._writes = OwnWrites()
        self._batches = Batches(context.limits.budgets_batch, self.enqueue)
        self._stale: WorkQueue[str] = WorkQueue("disruption", self._take_back_target, workers=1)
        self._stale_timers: Timers[str] = Timers(context.clock, self._stale.add)
        self._scales: dict[str, set[str]] = {}
        """By controller of pods, the budgets whose numbers depend on its scale."""

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource in (resource_of(BUDGETS), resource_of(PODS)):
            super().on_change(before, now)
            return
        for uid in self._scales.pop(latest.uid, ()):
            self._batches.later(uid)

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        budgets = {uid for pod in (before, now) if pod is not None for uid in self.owners_of_orphan(pod)}
        for uid in budgets:
            self._batches.later(uid)
        if now is not None and not now.deleting and TARGET.encode() in now.json and self.graph.complete:
            self._stale.add(now.uid)

    def on_synced(self) -> None:
        super().on_synced()
        for pod in self.graph.everywhere(PODS):
            if TARGET.encode() in pod.json:
                self._stale.add(pod.uid)

    def forget(self, uid: str) -> None:
        super().forget(uid)
        self._writes.forget(uid)

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            async with asyncio.TaskGroup() as parts:
                parts.create_task(super().run())
                parts.create_task(self._stale.run())
                parts.create_task(self._stale_timers.run())
        finally:
            self._batches.close()

    async def reconcile(self, owner: PartialObject) -> None:
        if self._writes.lags(owner):
            return
        budget, now = owner.object(), self.clock.wall()
        about = reference_to(budget)
        selector = self.selector_of(budget.get("spec") or {})
        pods = [pod for pod in self.graph.listed(PODS, owner.namespace) if selector.matches(pod.labels)]
        if not pods:
            self.recorder.tell(about, NORMAL, "NoPods", "No matching pods found")
        try:
            scale = await self._scale(owner, budget, pods) if budget_decision.needs_scale(budget["spec"]) else 0
        except NoScale as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self.recorder.tell(about, WARNING, "CalculateExpectedPodCountFailed", message)
            await self._write(budget, budget_decision.failed_status(budget, str(error), now))
            return
        expected, desired = budget_decision.demand(budget["spec"], scale, len(pods))
        evictions = budget_decision.disrupted(budget, pods, now)
        for pod in evictions.overdue:
            message = f"Pod was expected by PDB {owner.namespace}/{owner.name} to be deleted but it wasn't"
            self.recorder.tell(Reference("Pod", pod.name, pod.namespace, pod.uid), WARNING, "NotDeleted", message)
        status = budget_decision.status_of(
            budget,
            expected=expected,
            desired=desired,
            current=budget_decision.healthy(pods, evictions.pods),
            evicted=evictions.pods,
            now=now,
        )
        await self._write(budget, status)
        if evictions.recheck is not None:
            self.enqueue_after(owner.uid, evictions.recheck)

    async def _write(self, budget: Object, status: Object) -> None:
        if status == (budget.get("status") or {}):
            return
        try:
            self._writes.wrote(await self.api.replace({**budget, "status": status}, subresource="status"))
        except ApiError as error:
            if error.code != 404:
                raise

    async def _scale(self, budget: PartialObject, object_: Object, pods: list[PartialObject]) -> int:
        """Returns how many pods the controllers of these pods desire together. Raises NoScale."""
        scales: dict[str, int] = {}
        unmanaged = [pod.name for pod in pods if pod.controller is None]
        seen: set[str] = set()
        for pod in pods:
            controller = pod.controller
            if controller is not None and controller.uid not in seen:
                seen.add(controller.uid)
                uid, replicas = await self._replicas(controller.api_version, controller.kind, controller.name, pod)
                scales[uid] = replicas
        for uid in scales:
            self._scales.setdefault(uid, set()).add(budget.uid)
        if unmanaged:
            message = (
                f"Pods selected by this PodDisruptionBudget (selector: {object_['spec'].get('selector')}) were found "
                "to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result "
                'in undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to '
                "an integer value."
            )
            self.recorder.tell(reference_to(object_), WARNING, "UnmanagedPods", message)
        return sum(scales.values())

    async def _replicas(self, api_version: str, kind: str, name: str, pod: PartialObject) -> tuple[str, int]:
        """Returns the uid and the desired replicas of a pod's controller, or of the Deployment above it."""
        found = await self.context.kinds.find(api_version, kind)
        if found is None:
            raise NoScale(f'found no controllers for pod "{pod.name}"')
        if resource_of(found) == resource_of(REPLICA_SETS):
            replica_set = self.graph.find(REPLICA_SETS, name, pod.namespace)
            above = replica_set.controller if replica_set is not None else None
            if above is not None and above.kind == DEPLOYMENTS.kind:
                found, name = DEPLOYMENTS, above.name
        if found.subresource("scale") is None:
            group_resource = qualified(found.resource, found.group)
            raise NoScale(f"{group_resource} does not implement the scale subresource")
        try:
            scale = await self.api.get(found, name, pod.namespace, subresource="scale")
        except ApiError as error:
            if error.code != 404:
                raise
            raise NoScale(f'found no controllers for pod "{pod.name}"') from error
        return scale["metadata"]["uid"], int((scale.get("spec") or {}).get("replicas") or 0)

    async def _take_back_target(self, uid: str) -> None:
        """Sets DisruptionTarget of a pod to False when nobody has deleted it."""
        pod = self.graph.node(uid)
        if pod is None or pod.deleting or (pod.pod is not None and pod.pod.phase in ("Succeeded", "Failed")):
            return
        whole = pod.object()
        rows = (whole.get("status") or {}).get("conditions") or []
        target = next((row for row in rows if row.get("type") == TARGET and row.get("status") == "True"), None)
        if target is None or target.get("reason") == "TerminationByKubelet":
            return
        now = self.clock.wall()
        left = parse(target["lastTransitionTime"]) + STALE_SECONDS - now
        if left > 0:
            self._stale_timers.set(uid, self._stale_timers.now() + left)
            return
        cleared = {"type": TARGET, "status": "False", "lastProbeTime": None, "lastTransitionTime": rfc3339(now)}
        whole["status"]["conditions"] = [cleared if row is target else row for row in rows]
        log.info("taking back disruption target of a pod that was not deleted", extra={"pod": str(pod)})
        try:
            await self.api.replace(whole, subresource="status")
        except ApiError as error:
            if error.code != 404:
                raise
