"""Decides about a CronJob: which start times were missed, when the next comes, and which Jobs of the past go. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from podwire.controllers.batch.job_decision import COMPLETE, FAILED, finished_as
from podwire.objects import cron
from podwire.objects.cron import Every, Schedule
from podwire.objects.times import parse
from podwire.protocols.k8sapi.watch import Object

MANY = 100
"""More missed start times than this are reported."""
DELTA = 0.1
"""Seconds after a start time at which the CronJob is looked at, so that clocks that differ a little agree."""
SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"


@dataclass(frozen=True, slots=True)
class Missed:
    """The start times since the last one that was met."""

    since: float
    latest: float | None
    """The last start time that has come and was not met."""
    count: int
    """About how many were missed, above one."""


def schedule_of(cron_job: Object) -> Schedule | Every:
    """Returns the schedule in the CronJob's time zone; raises ValueError."""
    spec = cron_job["spec"]
    return cron.parse(spec.get("schedule") or "", cron.zone_of(spec.get("timeZone") or ""))


def missed(cron_job: Object, now: float, schedule: Schedule | Every, *, by_deadline: bool) -> Missed:
    """Returns the unmet start times; with `by_deadline` only those that may still be met. Raises ValueError.

    A long outage does not cost a calculation of each: most are skipped by the distance of the first two.
    """
    status, spec = cron_job.get("status") or {}, cron_job["spec"]
    since = parse(status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"])
    deadline = spec.get("startingDeadlineSeconds")
    if by_deadline and deadline is not None:
        since = max(since, now - deadline)
    first = schedule.next(since)
    second = None if first is None else schedule.next(first)
    if first is None or second is None:
        raise ValueError("time difference between two schedules is less than 1 second")
    if now < first:
        return Missed(since, None, 0)
    if now < second:
        return Missed(since, first, 0)
    distance = round(second - first)
    if distance < 1:
        raise ValueError("time difference between two schedules is less than 1 second")
    count = int(now - first) // distance + 1
    latest, time = None, schedule.next(first + (count - 2) * distance)
    while time is not None and time <= now:
        latest, time = time, schedule.next(time)
    return Missed(since, latest, count)


def next_delay(cron_job: Object, now: float, schedule: Schedule | Every) -> float:
    """Returns the seconds until the CronJob has to be looked at again."""
    try:
        unmet = missed(cron_job, now, schedule, by_deadline=False)
    except ValueError:
        start = now
    else:
        start = unmet.latest if unmet.latest is not None else now if unmet.count else unmet.since
    upcoming = schedule.next(start)
    return max(0.0, (now if upcoming is None else upcoming) + DELTA - now)


def job_name(cron_job: Object, scheduled: float) -> str:
    """Returns the name of the Job of one start time: a second attempt finds the first one's Job."""
    return f"{cron_job['metadata']['name']}-{int(scheduled) // 60}"


def new_job(cron_job: Object, scheduled: float) -> Object:
    """Returns the Job of one start time."""
    meta, template = cron_job["metadata"], cron_job["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    zone = cron.zone_of(cron_job["spec"].get("timeZone") or "")
    shown = datetime.fromtimestamp(int(scheduled), zone).isoformat().replace("+00:00", "Z")
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: dict[str, Any] = {
        "name": job_name(cron_job, scheduled),
        "namespace": meta["namespace"],
        "annotations": {**(given.get("annotations") or {}), SCHEDULED_AT: shown},
        "ownerReferences": [owner],
    }
    if given.get("labels"):
        metadata["labels"] = dict(given["labels"])
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template.get("spec") or {}}


def reference_to_job(job: Object) -> dict[str, Any]:
    meta = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
        "resourceVersion": meta.get("resourceVersion", ""),
    }


def surplus_jobs(spec: Mapping[str, Any], jobs: Sequence[Object]) -> list[Object]:
    """Returns the oldest finished Jobs above the two history limits."""
    surplus: list[Object] = []
    for type_, field in ((COMPLETE, "successfulJobsHistoryLimit"), (FAILED, "failedJobsHistoryLimit")):
        limit = spec.get(field)
        if limit is not None:
            finished = sorted((job for job in jobs if finished_as(job) == type_), key=_start)
            surplus += finished[: max(0, len(finished) - limit)]
    return surplus


def _start(job: Object) -> tuple[bool, str, str]:
    """Orders Jobs by their start; those that never started come last."""
    started = (job.get("status") or {}).get("startTime") or ""
    return not started, started, job["metadata"]["name"]
