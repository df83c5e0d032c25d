"""The CronJob controller: creates Jobs at their times, watches over them, and removes old ones."""

from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, ClassVar

from podwire.controllers.batch import cron_decision
from podwire.controllers.batch.job_decision import COMPLETE, finished_as
from podwire.controllers.context import Context
from podwire.controllers.kinds import CRON_JOBS, JOBS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.own_writes import OwnWrites
from podwire.controllers.pod_control import reference_to
from podwire.controllers.reconciler import Reconciler
from podwire.objects import cron
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.client_side import Propagation
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object

LONGEST_SLEEP = 60.0
"""Seconds after which the clock is read again: timers do not count the time during which a machine is suspended."""


class CronJobController(Reconciler):
    """Reconciles a CronJob when it or one of its Jobs changes, and at its start times."""

    name: ClassVar[str] = "cronjob-controller"
    kind: ClassVar[Kind] = CRON_JOBS
    dependents: ClassVar[tuple[Kind, ...]] = (JOBS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._writes = OwnWrites()

    def forget(self, uid: str) -> None:
        super().forget(uid)
        self._writes.forget(uid)

    async def reconcile(self, owner: PartialObject) -> None:
        """Syncs a CronJob.

        1. Delete Jobs above the history limits.  2. Update the list of active Jobs.  3. Create the Job of the last
        start time that was not met.  4. Write the status.  5. Sleep until the next start time.
        """
        if self._writes.lags(owner):
            return
        cron_job = owner.object()
        status: dict[str, Any] = dict(cron_job.get("status") or {})
        cron_job["status"] = status
        jobs = [job.object() for job in self.graph.dependents(owner.uid) if job.resource == resource_of(JOBS)]
        before = {**status, "active": list(status.get("active") or ())}
        try:
            for job in cron_decision.surplus_jobs(cron_job["spec"], jobs):
                if not job["metadata"].get("deletionTimestamp"):
                    await self._delete(cron_job, job)
            await self._review(cron_job, jobs)
            delay = await self._start_due(cron_job)
        finally:
            after = {**status, "active": status.get("active") or []}
            if after != before:
                if not after["active"]:
                    del after["active"]
                self._writes.wrote(await self.api.replace({**owner.object(), "status": after}, subresource="status"))
        if delay is not None:
            self.enqueue_after(owner.uid, min(delay, LONGEST_SLEEP))

    async def _review(self, cron_job: Object, jobs: Sequence[Object]) -> None:
        """Updates the active Jobs and the last success."""
        status, about = cron_job["status"], reference_to(cron_job)
        active = {entry.get("uid"): entry for entry in status.get("active") or ()}
        for job in jobs:
            meta, end = job["metadata"], finished_as(job)
            if not end and meta["uid"] not in active:
                if not await self._is_recorded(cron_job, meta["uid"]):
                    message = f"Saw a job that the controller did not create or forgot: {meta['name']}"
                    self.recorder.tell(about, WARNING, "UnexpectedJob", message)
            elif end:
                if active.pop(meta["uid"], None) is not None:
                    message = f"Saw completed job: {meta['name']}, condition: {end}"
                    self.recorder.tell(about, NORMAL, "SawCompletedJob", message)
                ended = (job.get("status") or {}).get("completionTime")
                last = status.get("lastSuccessfulTime")
                if end == COMPLETE and ended and (not last or parse(ended) > parse(last)):
                    status["lastSuccessfulTime"] = ended
        known = {job["metadata"]["uid"] for job in jobs}
        for uid, entry in list(active.items()):
            if uid not in known and not await self._exists(entry):
                self.recorder.tell(about, NORMAL, "MissingJob", f"Active job went missing: {entry['name']}")
                del active[uid]
        status["active"] = list(active.values())

    async def _is_recorded(self, cron_job: Object, uid: str) -> bool:
        """Asks the server whether a Job is active: our status may be newer there."""
        meta = cron_job["metadata"]
        fresh = await self.api.get(CRON_JOBS, meta["name"], meta["namespace"])
        entries = (fresh.get("status") or {}).get("active") or ()
        return any(entry.get("uid") == uid for entry in entries)

    async def _exists(self, entry: Object) -> bool:
        try:
            await self.api.get(JOBS, entry["name"], entry["namespace"])
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def _start_due(self, cron_job: Object) -> float | None:
        """Creates the Job that is due; returns the seconds until the next, None when there is none."""
        spec, about = cron_job["spec"], reference_to(cron_job)
        if cron_job["metadata"].get("deletionTimestamp") or spec.get("suspend"):
            return None
        zone = spec.get("timeZone")
        try:
            cron.zone_of(zone or "")
        except ValueError as error:
            self.recorder.tell(about, WARNING, "UnknownTimeZone", f'invalid timeZone: "{zone}": {error}')
            return None
        try:
            schedule = cron_decision.schedule_of(cron_job)
        except ValueError as error:
            message = f'unparseable schedule: "{spec.get("schedule")}" : {error}'
            self.recorder.tell(about, WARNING, "UnparseableSchedule", message)
            return None
        if "TZ" in spec["schedule"]:
            message = (
                f'CRON_TZ or TZ used in schedule "{spec["schedule"]}" is not officially supported, see '
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            )
            self.recorder.tell(about, WARNING, "UnsupportedSchedule", message)
        now = self.clock.wall()
        try:
            unmet = cron_decision.missed(cron_job, now, schedule, by_deadline=True)
        except ValueError as error:
            self.recorder.tell(about, WARNING, "InvalidSchedule", f"invalid schedule: {spec['schedule']} : {error}")
            return None
        if unmet.latest is not None:
            if unmet.count > cron_decision.MANY:
                message = (
                    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
                )
                self.recorder.tell(about, WARNING, "TooManyMissedTimes", message)
            await self._start(cron_job, unmet.latest, now)
        return cron_decision.next_delay(cron_job, now, schedule)

    async def _start(self, cron_job: Object, scheduled: float, now: float) -> None:
        """Creates the Job of a start time, unless it is too late or another Job forbids it."""
        spec, status, about = cron_job["spec"], cron_job["status"], reference_to(cron_job)
        deadline, last = spec.get("startingDeadlineSeconds"), status.get("lastScheduleTime")
        active = status.get("active") or []
        if deadline is not None and scheduled + deadline < now:
            moment = format_datetime(datetime.fromtimestamp(scheduled, UTC))
            self.recorder.tell(about, WARNING, "MissSchedule", f"Missed scheduled time to start a job: {moment}")
            return
        name = cron_decision.job_name(cron_job, scheduled)
        if any(entry.get("name") == name for entry in active) or (last and parse(last) == scheduled):
            return
        if active and spec.get("concurrencyPolicy") == "Forbid":
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.recorder.tell(about, NORMAL, "JobAlreadyActive", message)
            return
        if spec.get("concurrencyPolicy") == "Replace":
            for entry in active:
                await self._delete(cron_job, {"metadata": entry})
        job = await self._create(cron_job, cron_decision.new_job(cron_job, scheduled))
        if job is not None:
            status["active"] = [*(status.get("active") or ()), cron_decision.reference_to_job(job)]
            status["lastScheduleTime"] = rfc3339(scheduled)

    async def _create(self, cron_job: Object, job: Object) -> Object | None:
        """Creates a Job; returns ours if it exists already, None if another one has its name."""
        about, meta = reference_to(cron_job), job["metadata"]
        try:
            created = await self.api.create(job)
        except ApiError as error:
            if error.reason is Reason.ALREADY_EXISTS:
                existing = await self.api.get(JOBS, meta["name"], meta["namespace"])
                owners = existing["metadata"].get("ownerReferences") or ()
                ours = any(owner.get("uid") == cron_job["metadata"]["uid"] for owner in owners)
                return existing if ours else None
            self.recorder.tell(about, WARNING, "FailedCreate", f"Error creating job: {error.message}")
            raise
        self.recorder.tell(about, NORMAL, "SuccessfulCreate", f"Created job {meta['name']}")
        return created

    async def _delete(self, cron_job: Object, job: Object) -> None:
        """Deletes a Job with its pods, and forgets that it was active."""
        about, meta, status = reference_to(cron_job), job["metadata"], cron_job["status"]
        namespace = cron_job["metadata"]["namespace"]
        try:
            await self.api.delete(
                JOBS, meta["name"], namespace, propagation=Propagation.BACKGROUND, uid=meta.get("uid", "")
            )
        except ApiError as error:
            if error.code not in (404, 409):
                self.recorder.tell(about, WARNING, "FailedDelete", f"Deleted job: {error.message}")
                raise
        else:
            self.recorder.tell(about, NORMAL, "SuccessfulDelete", f"Deleted job {meta['name']}")
        status["active"] = [entry for entry in status.get("active") or () if entry.get("uid") != meta.get("uid")]
