"""The Job controller on a real API server; the tests end the pods."""

import pytest

from podwire.controllers.kinds import EVENTS, JOBS, PODS
from podwire.protocols.k8sapi.client_side import Propagation, Scope
from tests.eventually import eventually_async


def job(name="sum", **spec):
    container = {"name": "c", "image": "x"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


def conditions(status):
    return [(row["type"], row["status"], row["reason"]) for row in status["conditions"]]


async def events(cluster, count):
    async def look():
        found = [(row["reason"], row["message"]) for row in (await cluster.api.list(EVENTS, Scope())).items]
        assert len(found) >= count, found
        return found

    return await eventually_async(look)


async def test_a_job_runs_its_pods_counts_them_and_completes(cluster):
    await cluster.api.create(job(parallelism=2, completions=3))
    first = await cluster.wait_for_pods(2)
    await cluster.status(JOBS, "sum", active=2, ready=0, uncountedTerminatedPods={})
    for pod in first:
        assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
        await cluster.end(pod)
    (last,) = await cluster.wait_for_pods(1)
    await cluster.end(last)
    status = await cluster.status(JOBS, "sum", succeeded=3, active=None, failed=None, uncountedTerminatedPods={})
    status = await cluster.status(JOBS, "sum", terminating=0, succeeded=3)
    assert status["completionTime"] >= status["startTime"]
    assert conditions(status) == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]
    assert not any(pod["metadata"].get("finalizers") for pod in await cluster.pods())
    result = await events(cluster, 4)
    assert ("Completed", "Job completed") in result
    assert sum(reason == "SuccessfulCreate" for reason, _ in result) == 3


async def test_failed_pods_are_replaced_until_the_limit(cluster):
    await cluster.api.create(job(backoffLimit=1))
    for failures in (1, 2):
        (pod,) = await cluster.wait_for_pods(1)
        await cluster.end(pod, 3)
        status = await cluster.status(JOBS, "sum", failed=failures)
    status = await cluster.status(JOBS, "sum", failed=2, active=None, terminating=0)
    assert conditions(status)[-1] == ("Failed", "True", "BackoffLimitExceeded")
    assert ("BackoffLimitExceeded", "Job has reached the specified backoff limit") in await events(cluster, 3)


async def test_an_indexed_job_with_a_failed_index_runs_the_others(cluster):
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1}
    await cluster.api.create(job(**spec))
    for pod in await cluster.wait_for_pods(3):
        index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        assert pod["spec"]["hostname"] == f"sum-{index}"
        await cluster.end(pod, int(index == "1"))
    (again,) = await cluster.wait_for_pods(1)
    assert again["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
    await cluster.end(again, 1)
    await cluster.status(JOBS, "sum", completedIndexes="0,2", failedIndexes="1", succeeded=2, failed=2)
    await cluster.status(JOBS, "sum", terminating=0, active=None)
    await eventually_async(lambda: _finished(cluster))
    assert conditions(await cluster.status(JOBS, "sum"))[-1] == ("Failed", "True", "FailedIndexes")


async def _finished(cluster):
    rows = (await cluster.api.get(JOBS, "sum", "default"))["status"].get("conditions") or ()
    return any(row["type"] in ("Failed", "Complete") for row in rows)


async def test_a_suspended_job_has_no_pods_and_starts_again(cluster):
    await cluster.api.create(job(suspend=True))
    status = await cluster.status(JOBS, "sum", active=None, startTime=None)
    await eventually_async(lambda: _suspended(cluster))
    assert await cluster.pods() == []
    await cluster.api.patch(JOBS, "sum", {"spec": {"suspend": False}}, "default")
    (pod,) = await cluster.wait_for_pods(1)
    await cluster.api.patch(JOBS, "sum", {"spec": {"suspend": True}}, "default")
    await cluster.gone(PODS, pod["metadata"]["name"])
    status = await cluster.status(JOBS, "sum", failed=None, active=None, terminating=0)
    assert conditions(status) == [("Suspended", "True", "JobSuspended")]


async def _suspended(cluster):
    status = (await cluster.api.get(JOBS, "sum", "default")).get("status") or {}
    return [row["type"] for row in status.get("conditions") or ()] == ["Suspended"]


async def test_a_deadline_ends_a_job_and_its_pods(cluster):
    await cluster.api.create(job(activeDeadlineSeconds=1))
    await cluster.wait_for_pods(1)
    status = await cluster.status(JOBS, "sum", failed=1, active=None, terminating=0)
    await eventually_async(lambda: _finished(cluster))
    status = await cluster.status(JOBS, "sum")
    assert conditions(status)[-1] == ("Failed", "True", "DeadlineExceeded")
    assert await cluster.pods() == []


async def test_a_finished_job_is_deleted_after_its_ttl(cluster):
    await cluster.api.create(job(ttlSecondsAfterFinished=0))
    (pod,) = await cluster.wait_for_pods(1)
    await cluster.end(pod)
    await cluster.gone(JOBS, "sum")
    await cluster.gone(PODS, pod["metadata"]["name"])


async def test_a_job_of_another_controller_is_left_alone(cluster):
    await cluster.api.create(job("other", managedBy="example.com/queue"))
    await cluster.api.create(job())
    (pod,) = await cluster.wait_for_pods(1)
    assert pod["metadata"]["labels"]["job-name"] == "sum"
    assert (await cluster.api.get(JOBS, "other", "default")).get("status") in (None, {})


@pytest.mark.parametrize("propagation", [Propagation.BACKGROUND, Propagation.FOREGROUND, Propagation.ORPHAN])
async def test_pods_of_a_deleted_job_lose_the_finalizer(cluster, propagation):
    await cluster.api.create(job())
    (pod,) = await cluster.wait_for_pods(1)
    await cluster.api.delete(JOBS, "sum", "default", propagation=propagation)
    await cluster.gone(JOBS, "sum")
    if propagation is not Propagation.ORPHAN:
        await cluster.gone(PODS, pod["metadata"]["name"])
        return

    async def released():
        left = (await cluster.api.get(PODS, pod["metadata"]["name"], "default"))["metadata"]
        return not left.get("finalizers") and not left.get("ownerReferences")

    await eventually_async(released)


async def test_a_job_with_a_manual_selector_adopts_pods_and_counts_them(cluster):
    labels = {"app": "mine"}
    orphan = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "orphan", "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"},
    }
    await cluster.api.create(orphan)
    made = job(manualSelector=True, selector={"matchLabels": labels})
    made["spec"]["template"]["metadata"] = {"labels": labels}
    await cluster.api.create(made)
    await cluster.status(JOBS, "sum", active=1)
    (pod,) = await cluster.wait_for_pods(1)
    assert pod["metadata"]["name"] == "orphan"
    await cluster.end(pod)
    await cluster.status(JOBS, "sum", succeeded=1)


async def test_a_job_that_no_quota_allows_does_not_loop(cluster):
    metadata = {"name": "none", "namespace": "default"}
    await cluster.api.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}}
    )
    await cluster.api.create(job(parallelism=100, completions=100))
    reasons = [reason for reason, _ in await events(cluster, 1)]
    assert "FailedCreate" in reasons
    creations = [row for row in cluster.requests() if row == ("POST", "/api/v1/namespaces/default/pods")]
    assert len(creations) < 12  # one at a time, after pauses that double: not one for each of the hundred


async def test_a_finished_job_costs_few_requests(cluster):
    await cluster.api.create(job())
    (pod,) = await cluster.wait_for_pods(1)
    await cluster.end(pod)
    await eventually_async(lambda: _finished(cluster))
    about = [row for row in cluster.requests() if "/jobs" in row[1] or "/pods" in row[1]]
    assert len(about) <= 8, about
