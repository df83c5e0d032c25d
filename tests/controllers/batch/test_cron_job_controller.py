"""The CronJob controller on a real API server, with a clock that the tests advance."""

import pytest

from podwire.controllers.kinds import CRON_JOBS, EVENTS, JOBS
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async


def cron_job(name="tick", schedule="* * * * *", **spec):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    metadata = {"name": name, "namespace": "default"}
    given = {"schedule": schedule, "jobTemplate": {"spec": {"template": template}}, **spec}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": given}


class Ticks:
    """Advances the clock and makes the controller read it."""

    def __init__(self, cluster, clock):
        self.cluster, self.clock, self.count = cluster, clock, 0

    async def advance(self, seconds, name="tick"):
        self.clock.ahead += seconds
        self.count += 1
        patch = {"metadata": {"annotations": {"tick": str(self.count)}}}
        await self.cluster.api.patch(CRON_JOBS, name, patch, "default")


@pytest.fixture
def ticks(cluster, clock):
    return Ticks(cluster, clock)


async def jobs(cluster):
    return sorted(job["metadata"]["name"] for job in (await cluster.api.list(JOBS, Scope(namespace="default"))).items)


async def becomes(cluster, count):
    async def look():
        found = await jobs(cluster)
        assert len(found) == count, found
        return found

    return await eventually_async(look)


async def reported(cluster, reason):
    async def look():
        rows = (await cluster.api.list(EVENTS, Scope())).items
        about = [row for row in rows if row["involvedObject"]["kind"] == "CronJob"]
        messages = [row["message"] for row in about if row["reason"] == reason]
        assert messages, [(row["reason"], row["message"]) for row in rows]
        return messages[0]

    return await eventually_async(look)


async def finish(cluster):
    (pod,) = await cluster.wait_for_pods(1)
    await cluster.end(pod)


async def test_a_cron_job_starts_jobs_at_its_times_and_keeps_some(cluster, ticks):
    await cluster.api.create(cron_job(successfulJobsHistoryLimit=1))
    seen = set()
    for _ in range(3):
        await ticks.advance(60)
        await finish(cluster)
        await cluster.status(CRON_JOBS, "tick", active=None)
        seen |= set(await jobs(cluster))
    await becomes(cluster, 1)
    assert len(seen) == 3
    status = await cluster.status(CRON_JOBS, "tick")
    assert status["lastSuccessfulTime"]
    assert status["lastScheduleTime"].endswith(":00Z")
    assert (await reported(cluster, "SuccessfulCreate")).startswith("Created job tick-")
    assert (await reported(cluster, "SawCompletedJob")).endswith("condition: Complete")
    assert (await reported(cluster, "SuccessfulDelete")).startswith("Deleted job tick-")


async def test_a_running_job_forbids_the_next_or_is_replaced(cluster, ticks):
    await cluster.api.create(cron_job("never", concurrencyPolicy="Forbid"))
    await ticks.advance(60, "never")
    await becomes(cluster, 1)
    await cluster.status(CRON_JOBS, "never")
    await ticks.advance(60, "never")
    message = "Not starting job because prior execution is running and concurrency policy is Forbid"
    assert await reported(cluster, "JobAlreadyActive") == message
    (first,) = await becomes(cluster, 1)
    await cluster.api.patch(CRON_JOBS, "never", {"spec": {"concurrencyPolicy": "Replace"}}, "default")

    async def replaced():
        return [name for name in await jobs(cluster) if name != first] and first not in await jobs(cluster)

    await eventually_async(replaced)


async def test_a_suspended_cron_job_starts_nothing_and_one_by_hand_belongs_to_it(cluster, ticks):
    await cluster.api.create(cron_job(suspend=True))
    created = await cluster.api.get(CRON_JOBS, "tick", "default")
    await ticks.advance(3600)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": created["metadata"]["uid"],
             "controller": True}  # fmt: skip
    manual = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "by-hand", "namespace": "default", "ownerReferences": [owner]},
        "spec": created["spec"]["jobTemplate"]["spec"],
    }
    await cluster.api.create(manual)
    assert await reported(cluster, "UnexpectedJob") == "Saw a job that the controller did not create or forgot: by-hand"
    assert await jobs(cluster) == ["by-hand"]


async def test_many_missed_starts_are_reported_and_cost_one_job(cluster, ticks):
    await cluster.api.create(cron_job())
    await ticks.advance(3 * 3600)
    assert "too many missed start times" in await reported(cluster, "TooManyMissedTimes")
    await becomes(cluster, 1)


async def test_a_schedule_that_never_comes_is_reported_once_and_does_not_loop(cluster, ticks):
    await cluster.api.create(cron_job(schedule="0 0 31 2 *"))
    message = await reported(cluster, "InvalidSchedule")
    assert message == "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second"
    assert [row for row in cluster.requests() if "cronjobs" in row[1] and row[0] != "GET"] == []


@pytest.mark.parametrize(
    ("schedule", "zone", "why"),
    [
        ("* * * *", None, 'spec.schedule: Invalid value: "* * * *": expected exactly 5 fields, found 4: [* * * *]'),
        ("99 * * * *", None, 'spec.schedule: Invalid value: "99 * * * *": end of range (99) above maximum (59): 99'),
        ("@daily", "Mars/Base", 'spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base'),
    ],
)
async def test_invalid_schedules_are_refused(cluster, schedule, zone, why):
    with pytest.raises(ApiError) as caught:
        await cluster.api.create(cron_job(schedule=schedule, **({"timeZone": zone} if zone else {})))
    assert why in caught.value.message
