"""The Job controller: carries out what `job_decision.py` and `job_accounting.py` decide."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar

from podwire.controllers.batch import job_accounting, job_decision, job_pods
from podwire.controllers.batch.job_accounting import Accounting, PodCounts
from podwire.controllers.batch.job_decision import Assessment, Condition, Pace, Plan
from podwire.controllers.batch.job_failures import FINALIZER, Backoff, is_ready
from podwire.controllers.batching import Batches
from podwire.controllers.context import Context
from podwire.controllers.kinds import JOBS, PODS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.own_writes import OwnWrites
from podwire.controllers.pod_control import delete_all, namespace_is_terminating, reference_to, slow_start
from podwire.controllers.reconciler import Reconciler
from podwire.controllers.work_queue import WorkQueue
from podwire.protocols.k8sapi.client_side import ClientError, PatchType
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

SMALL_JOB = 16
"""Pods up to which each change of a pod is handled at once; the changes of larger Jobs are handled together."""


class JobController(Reconciler):
    """Runs the pods of Jobs and counts them exactly once."""

    name: ClassVar[str] = "job-controller"
    kind: ClassVar[Kind] = JOBS
    dependents: ClassVar[tuple[Kind, ...]] = (PODS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        limits = context.limits
        self._pace = Pace(first_pause=limits.job_backoff, longest_pause=limits.job_max_backoff)
        self._backoffs: dict[str, Backoff] = {}
        self._released: defaultdict[str, set[str]] = defaultdict(set)
        """By Job, pods whose finalizer we removed and the feed still shows."""
        self._writes = OwnWrites()
        self._orphans: defaultdict[str, set[str]] = defaultdict(set)
        """By namespace, pods without a controller: candidates for adoption."""
        self._batches = Batches(limits.job_batch, super().enqueue)
        self._unowned: WorkQueue[str] = WorkQueue("job", self._release_unowned, workers=2)

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            async with asyncio.TaskGroup() as parts:
                parts.create_task(super().run())
                parts.create_task(self._unowned.run())
        finally:
            self._batches.close()

    def on_synced(self) -> None:
        super().on_synced()
        for pod in self.graph.everywhere(PODS):
            self._check_owner(pod)

    def forget(self, uid: str) -> None:
        super().forget(uid)
        self._backoffs.pop(uid, None)
        self._released.pop(uid, None)
        self._writes.forget(uid)
        for pod in self.graph.dependents(uid):
            self._check_owner(pod)

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        controller = latest.controller
        orphans = self._orphans[latest.namespace]
        (orphans.add if now is not None and controller is None else orphans.discard)(latest.uid)
        if not orphans:
            del self._orphans[latest.namespace]
        if controller is not None and (now is None or FINALIZER not in now.metadata.finalizers):
            self._released[controller.uid].discard(latest.uid)
            if not self._released[controller.uid]:
                del self._released[controller.uid]
        super().on_dependent(before, now)
        if now is not None:
            self._check_owner(now)

    def enqueue(self, uid: str) -> None:
        """Enqueues a Job; one with many pods after a moment, together with the changes of that time."""
        if len(self.graph.dependents(uid)) <= SMALL_JOB:
            super().enqueue(uid)
        else:
            self._batches.later(uid)

    async def reconcile(self, owner: PartialObject) -> None:
        """Syncs a Job.

        1. Create or delete pods.  2. List finished pods in the status.  3. Remove their finalizers.  4. Count them,
        and finish the Job when nothing is left to count.
        """
        if self._writes.lags(owner):
            return
        job = owner.object()
        if job_decision.managed_elsewhere(job):
            return
        if job_decision.finished_as(job):
            self._backoffs.pop(owner.uid, None)
            self.expectations.forget(owner.uid)
            for pod in self.graph.dependents(owner.uid):
                self._check_owner(pod)
            return
        current = self.expectations.satisfied(owner.uid)
        owned = {pod.uid: pod for pod in await self._owned(owner, job)}
        now = self.clock.wall()
        backoff = self._backoffs.get(owner.uid, Backoff())
        released = self._released.get(owner.uid, set())
        state = job_decision.assess(job, [pod.object() for pod in owned.values()], released, backoff, now)
        plan = job_decision.plan(job, state, now, cache_is_current=current, pace=self._pace)
        counts, failure = await self._carry_out(job, state, plan, owned)
        waits = [wait for wait in (state.recheck, plan.recheck) if wait is not None]
        if waits:
            self.enqueue_after(owner.uid, min(waits))
        finished = state.finished
        if finished is not None and (counts.active or not current):
            finished = None  # pods are left, or some that the feed has not reported yet
        elif finished is None:
            finished = job_decision.completed(job, state, counts.active, now)
            if finished is None and plan.managed:
                job = self._with_suspension(job, now)
        accounting = job_accounting.account(job, state, counts, finished, now)
        await self._write(job, owner, state, accounting)
        if failure is not None:
            raise failure

    async def _owned(self, owner: PartialObject, job: Object) -> list[PartialObject]:
        """Returns the Job's pods; adopts orphans that its selector matches."""
        orphans = [pod for uid in self._orphans.get(owner.namespace, ()) if (pod := self.graph.node(uid)) is not None]
        pods = [pod for pod in self.graph.dependents(owner.uid) if pod.resource == resource_of(PODS)]
        selector = self.selector_of(job["spec"])
        return await self.adoption.settle(
            owner, [*pods, *orphans], lambda pod: selector.matches(pod.labels), finalizer=FINALIZER
        )

    async def _carry_out(
        self, job: Object, state: Assessment, plan: Plan, owned: Mapping[str, PartialObject]
    ) -> tuple[PodCounts, Exception | None]:
        """Creates or deletes pods; returns the numbers of pods then, and the first failure."""
        uid, deleted, deleted_ready = job["metadata"]["uid"], 0, 0
        failure: Exception | None = None
        created = 0
        if plan.delete:
            ready = {pod["metadata"]["uid"]: is_ready(pod) for pod in plan.delete}
            if not plan.keep_finalizers:
                self.expectations.expect(uid, deletions=ready)
            gone: list[str] = []

            async def delete(pod: PartialObject) -> None:
                try:
                    if not plan.keep_finalizers:
                        await self._remove_finalizer(pod)
                    await self.pods.delete(pod, job)
                except ApiError as error:
                    self.expectations.deleted(uid, pod.uid)
                    if error.code != 404:
                        raise
                gone.append(pod.uid)

            failure = await delete_all([owned[pod_uid] for pod_uid in ready], delete)
            deleted, deleted_ready = len(gone), sum(ready[pod_uid] for pod_uid in gone)
        elif plan.create:
            self.expectations.expect(uid, creations=len(plan.create))

            async def create(place: int) -> None:
                index = plan.create[place]
                replaced = state.delayed.get(index) if index is not None else None
                await self.pods.create(job_pods.new_pod(job, index, replaced), job)

            created, failure = await slow_start(len(plan.create), create)
            self.expectations.created(uid, len(plan.create) - created)
            if isinstance(failure, ApiError) and namespace_is_terminating(failure):
                failure = None
        active = len(state.active) + created - deleted
        return PodCounts(active, state.ready - deleted_ready, state.terminating + deleted), failure

    def _with_suspension(self, job: Object, now: float) -> Object:
        changed = job_accounting.suspension(job, now)
        if changed is None:
            return job
        status, reason = changed
        self.recorder.tell(reference_to(job), NORMAL, reason, f"Job {reason.lower()}")
        return {**job, "status": status}

    async def _write(self, job: Object, owner: PartialObject, state: Assessment, accounting: Accounting) -> None:
        """Writes the status, releases pods, and writes it again with their counts."""
        before = owner.object().get("status") or {}
        status: Mapping[str, Any] = accounting.status
        if status != before:
            job = await self._write_status(job, status)
            status = job.get("status") or {}
            self._backoffs[owner.uid] = state.backoff
        left, failure = await self._release(owner.uid, accounting)
        counted = job_accounting.count_released(status, left)
        done = None if failure else job_accounting.finish(counted, accounting)
        if done is not None or counted != status:
            await self._write_status(job, done or counted)
        if done is not None and accounting.finished is not None:
            self._tell_finished(job, done, accounting.finished)
        if failure is not None:
            raise failure

    async def _write_status(self, job: Object, status: Mapping[str, Any]) -> Object:
        written = await self.api.replace({**job, "status": dict(status)}, subresource="status")
        self._writes.wrote(written)
        return written

    async def _release(self, uid: str, accounting: Accounting) -> tuple[set[str], Exception | None]:
        """Removes finalizers; returns the uids that still have it, and the first failure."""
        left = set(accounting.tracked)

        async def release(pod: PartialObject) -> None:
            self._released[uid].add(pod.uid)
            try:
                await self._remove_finalizer(pod)
            except (ApiError, ClientError):
                self._released[uid].discard(pod.uid)
                raise
            left.discard(pod.uid)

        pods = [self.graph.node(pod["metadata"]["uid"]) for pod in accounting.release]
        left -= {pod["metadata"]["uid"] for pod, known in zip(accounting.release, pods, strict=True) if known is None}
        return left, await delete_all([pod for pod in pods if pod is not None], release)

    async def _remove_finalizer(self, pod: PartialObject) -> None:
        """Removes the finalizer of a pod; one that is gone has none."""
        if FINALIZER not in pod.metadata.finalizers:
            return
        patch = {"metadata": {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
        try:
            await self.api.patch(PODS, pod.name, patch, pod.namespace, type_=PatchType.STRATEGIC)
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or replaced by another of its name
                raise

    def _tell_finished(self, job: Object, status: Mapping[str, Any], final: Condition) -> None:
        about = reference_to(job)
        if final["type"] == job_decision.COMPLETE:
            wanted = job["spec"].get("completions")
            if wanted is not None and (status.get("succeeded") or 0) > wanted:
                message = "Too many succeeded pods running after completion count reached"
                self.recorder.tell(about, WARNING, "TooManySucceededPods", message)
            self.recorder.tell(about, NORMAL, "Completed", "Job completed")
        else:
            self.recorder.tell(about, WARNING, final["reason"], final["message"])

    def _check_owner(self, pod: PartialObject) -> None:
        """Enqueues a pod that still has the finalizer although no unfinished Job counts it."""
        if FINALIZER not in pod.metadata.finalizers or not self.graph.complete:
            return
        controller = pod.controller
        if controller is None or controller.kind == "Job":
            job = self.graph.node(controller.uid) if controller is not None else None
            if job is None or job_decision.finished_as(job.object()):
                self._unowned.add(pod.uid)

    async def _release_unowned(self, uid: str) -> None:
        """Removes the finalizer of a pod whose Job is gone or finished. The server is asked: the feed may lag."""
        pod = self.graph.node(uid)
        if pod is None or FINALIZER not in pod.metadata.finalizers:
            return
        controller = pod.controller
        if controller is not None:
            try:
                job = await self.api.get(JOBS, controller.name, pod.namespace)
            except ApiError as error:
                if error.code != 404:
                    raise
            else:
                ours = job["metadata"]["uid"] == controller.uid
                if ours and (job_decision.managed_elsewhere(job) or not job_decision.finished_as(job)):
                    return
        log.debug("releasing pod without a job", extra={"pod": str(pod)})
        await self._remove_finalizer(pod)
