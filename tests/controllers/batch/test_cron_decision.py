"""Start times of CronJobs: which were missed, when the next comes, which Jobs go."""

import pytest

from podwire.controllers.batch import cron_decision
from podwire.objects.times import parse, rfc3339


def cron_job(schedule="*/10 * * * *", last=None, **spec):
    metadata = {"name": "tick", "namespace": "shop", "uid": "c-1", "creationTimestamp": "2026-07-09T10:05:00Z"}
    given = {"schedule": schedule, "jobTemplate": {"spec": {"template": {}}}, **spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata,
        "spec": given,
        "status": {"lastScheduleTime": last} if last else {},
    }


def unmet(given, now, *, by_deadline=True):
    found = cron_decision.missed(given, parse(now), cron_decision.schedule_of(given), by_deadline=by_deadline)
    return found.latest and rfc3339(found.latest), found.count


@pytest.mark.parametrize(
    ("given", "now", "latest", "many"),
    [
        (cron_job(), "2026-07-09T10:09:59Z", None, False),
        (cron_job(), "2026-07-09T10:10:00Z", "2026-07-09T10:10:00Z", False),
        (cron_job(last="2026-07-09T10:10:00Z"), "2026-07-09T10:19:00Z", None, False),
        (cron_job(), "2026-07-09T10:31:00Z", "2026-07-09T10:30:00Z", False),
        (cron_job(), "2026-07-20T00:00:05Z", "2026-07-20T00:00:00Z", True),
        (cron_job(startingDeadlineSeconds=300), "2026-07-20T00:04:00Z", "2026-07-20T00:00:00Z", False),
        (cron_job(startingDeadlineSeconds=60), "2026-07-20T00:04:00Z", None, False),
        (cron_job("@every 7s"), "2026-07-09T10:05:06Z", None, False),
    ],
)
def test_the_last_missed_start_is_found(given, now, latest, many):
    found, count = unmet(given, now)
    assert found == latest
    assert (count > cron_decision.MANY) is many


def test_a_schedule_that_never_comes_is_invalid():
    with pytest.raises(ValueError, match="time difference between two schedules is less than 1 second"):
        unmet(cron_job("0 0 30 2 *"), "2026-07-20T00:00:05Z")


@pytest.mark.parametrize(
    ("given", "now", "delay"),
    [
        (cron_job(), "2026-07-09T10:06:00Z", 240.1),
        (cron_job(last="2026-07-09T10:10:00Z"), "2026-07-09T10:10:00Z", 600.1),
        (cron_job(), "2026-07-20T00:00:05Z", 595.1),
    ],
)
def test_the_next_look_comes_shortly_after_the_next_start(given, now, delay):
    assert cron_decision.next_delay(given, parse(now), cron_decision.schedule_of(given)) == pytest.approx(delay)


def test_a_job_is_named_after_its_minute_and_annotated_with_its_local_time():
    given = cron_job(timeZone="Asia/Tokyo")
    given["spec"]["jobTemplate"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    job = cron_decision.new_job(given, parse("2026-07-09T10:10:00Z"))
    assert job["metadata"]["name"] == "tick-29726530"
    assert job["metadata"]["labels"] == {"a": "b"}
    assert job["metadata"]["annotations"] == {"c": "d", cron_decision.SCHEDULED_AT: "2026-07-09T19:10:00+09:00"}
    assert job["metadata"]["ownerReferences"][0]["uid"] == "c-1"
    utc = cron_decision.new_job(cron_job(), parse("2026-07-09T10:10:00Z"))
    assert utc["metadata"]["annotations"] == {cron_decision.SCHEDULED_AT: "2026-07-09T10:10:00Z"}


def test_the_oldest_finished_jobs_above_the_limits_go():
    def finished(name, type_, started):
        return {
            "metadata": {"name": name},
            "status": {"startTime": started, "conditions": [{"type": type_, "status": "True"}]},
        }

    jobs = [
        finished("c", "Complete", "2026-07-09T10:20:00Z"),
        finished("a", "Complete", "2026-07-09T10:00:00Z"),
        finished("b", "Complete", "2026-07-09T10:10:00Z"),
        finished("f", "Failed", "2026-07-09T09:00:00Z"),
        {"metadata": {"name": "running"}, "status": {"startTime": "2026-07-09T08:00:00Z"}},
    ]
    spec = {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}
    assert [job["metadata"]["name"] for job in cron_decision.surplus_jobs(spec, jobs)] == ["a", "b"]
    spec = {"failedJobsHistoryLimit": 0}
    assert [job["metadata"]["name"] for job in cron_decision.surplus_jobs(spec, jobs)] == ["f"]
