"""Decisions about Jobs: tables, and a simulation in which every write may be the last before a crash."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.controllers.batch import job_accounting, job_decision, job_failures, job_pods
from podwire.controllers.batch.job_accounting import PodCounts
from podwire.controllers.batch.job_decision import Pace
from podwire.controllers.batch.job_failures import FINALIZER, Backoff

NOW = 1_800_000_000.0
PACE = Pace()


def job(status=None, *, deleting=False, **spec):
    metadata = {"name": "sum", "namespace": "shop", "uid": "j-1"}
    if deleting:
        metadata["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    template = {
        "metadata": {"labels": {"app": "sum"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]},
    }
    given = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": given, "status": status or {}}


def indexed(status=None, **spec):
    return job(status, completionMode="Indexed", **spec)


_names = itertools.count()


def pod(phase="Running", *, index=None, code=None, deleting=False, tracked=True, ready=False, ended=0.0, **annotations):
    uid = f"p-{next(_names)}"
    metadata = {
        "name": uid,
        "namespace": "shop",
        "uid": uid,
        "creationTimestamp": "2027-01-15T07:00:00Z",
        "finalizers": [FINALIZER] if tracked else [],
        "annotations": {
            **({job_failures.COMPLETION_INDEX: str(index)} if index is not None else {}),
            **({job_failures.FAILURE_COUNT: str(annotations["failures"])} if "failures" in annotations else {}),
        },
    }
    if deleting:
        metadata["deletionTimestamp"] = "2027-01-15T07:59:59Z"
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    if code is not None:
        finished = job_decision.rfc3339(NOW - 1000 + ended)
        terminated = {"exitCode": code, "finishedAt": finished}
        status["containerStatuses"] = [{"name": "c", "state": {"terminated": terminated}}]
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}


NO_FAILURES = Backoff()


def decide(given, pods, *, backoff=NO_FAILURES, now=NOW, current=True):
    state = job_decision.assess(given, pods, frozenset(), backoff, now)
    return state, job_decision.plan(given, state, now, cache_is_current=current, pace=PACE)


@pytest.mark.parametrize(
    ("given", "pods", "created"),
    [
        (job(), [], 1),
        (job(parallelism=3, completions=10), [], 3),
        (job(parallelism=3, completions=10), [pod(), pod("Pending")], 1),
        (job({"succeeded": 9}, parallelism=3, completions=10), [], 1),
        (job(parallelism=2, completions=2), [pod("Succeeded", code=0), pod()], 0),
        (job(parallelism=2, completions=None), [pod("Succeeded", code=0)], 0),
        (job(parallelism=2, completions=None), [], 2),
        (job(parallelism=2000, completions=2000), [], 500),
        (job(suspend=True), [], 0),
        (job(deleting=True), [], 0),
        (job(parallelism=2, completions=2), [pod(deleting=True)], 2),
        (job(parallelism=2, completions=2, podReplacementPolicy="Failed"), [pod(deleting=True)], 1),
    ],
)
def test_a_job_creates_the_pods_that_it_lacks(given, pods, created):
    _, plan = decide(given, pods, now=NOW + 3600)
    assert len(plan.create) == created
    assert not plan.delete


def test_nothing_is_created_before_the_feed_shows_the_last_creations():
    assert decide(job(), [], current=False)[1] == job_decision.Plan(managed=False)


def test_a_smaller_parallelism_deletes_the_pods_that_have_done_least():
    pending, ready = pod("Pending"), pod(ready=True)
    _, plan = decide(job(parallelism=1, completions=5), [ready, pending])
    assert plan.delete == [pending]
    assert not plan.keep_finalizers


def test_an_indexed_job_replaces_only_missing_indexes():
    given = indexed({"completedIndexes": "0,2"}, parallelism=5, completions=6)
    state, plan = decide(given, [pod(index=3), pod("Succeeded", index=4, code=0)])
    assert list(plan.create) == [1, 5]
    assert state.succeeded == 3


def test_pods_with_repeated_or_invalid_indexes_are_deleted():
    kept, repeated, invalid, without = pod(index=0, ready=True), pod("Pending", index=0), pod(index=7), pod()
    _, plan = decide(indexed(parallelism=2, completions=2), [kept, repeated, invalid, without])
    assert {row["metadata"]["uid"] for row in plan.delete} == {
        row["metadata"]["uid"] for row in (repeated, invalid, without)
    }


@pytest.mark.parametrize(("failures", "wait"), [(1, 10), (2, 20), (3, 40), (7, 600), (500, 600)])
def test_failures_delay_the_next_pod_exponentially(failures, wait):
    plan = decide(job(backoffLimit=1000), [], backoff=Backoff(failures, NOW - 1))[1]
    assert not plan.create
    assert plan.recheck == wait - 1


def test_a_success_resets_the_back_off():
    old, success, new = (
        pod("Failed", code=1, ended=1),
        pod("Succeeded", code=0, ended=2),
        pod("Failed", code=1, ended=3),
    )
    assert Backoff(5, NOW).after([success], [old, new]) == Backoff(1, NOW - 1000 + 3)
    assert Backoff(5, NOW).after([success], [old]) == Backoff()
    assert Backoff(5, NOW - 9000).after([], [new]).failures == 6


def ended(given, pods, now=NOW):
    condition = decide(given, pods, now=now)[0].finished
    return condition and (condition["type"], condition["reason"], condition["message"])


RULES = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
        {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1, 42]}},
    ]
}


@pytest.mark.parametrize(
    ("given", "pods", "condition"),
    [
        (job(backoffLimit=1), [pod("Failed", code=1)], None),
        (
            job(backoffLimit=1),
            [pod("Failed", code=1), pod("Failed", code=1)],
            ("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
        ),
        (
            job({"startTime": "2027-01-15T07:00:00Z"}, activeDeadlineSeconds=60),
            [],
            ("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"),
        ),
        (job({"startTime": "2027-01-15T07:00:00Z"}, activeDeadlineSeconds=60, suspend=True), [], None),
        (
            indexed({"failedIndexes": "0"}, completions=3, backoffLimitPerIndex=0, maxFailedIndexes=1),
            [pod("Failed", index=1, code=1)],
            (
                "FailureTarget",
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            ),
        ),
        (
            indexed({"completedIndexes": "0"}, completions=2, backoffLimitPerIndex=1),
            [pod("Failed", index=1, code=1, failures=1)],
            ("FailureTarget", "FailedIndexes", "Job has failed indexes"),
        ),
        (indexed(completions=2, backoffLimitPerIndex=1), [pod("Failed", index=1, code=1, failures=0)], None),
        (
            indexed(
                {"completedIndexes": "0"},
                completions=9,
                successPolicy={"rules": [{"succeededIndexes": "5"}, {"succeededIndexes": "0-2", "succeededCount": 2}]},
            ),
            [pod("Succeeded", index=2, code=0)],
            ("SuccessCriteriaMet", "SuccessPolicy", "Matched rules at index 1"),
        ),
        (
            indexed(completions=9, successPolicy={"rules": [{"succeededCount": 2}]}),
            [pod("Succeeded", index=2, code=0)],
            None,
        ),
        (job(podFailurePolicy=RULES, backoffLimit=0), [pod("Failed", code=1)], (
            "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit",
        )),
    ],
)  # fmt: skip
def test_a_job_ends_with_the_reasons_of_upstream(given, pods, condition):
    assert ended(given, pods) == condition


def test_a_pod_failure_policy_fails_the_job_and_names_pod_rule_and_exit_code():
    failed = pod("Failed", code=42)
    name = failed["metadata"]["name"]
    message = f"Container c for pod shop/{name} failed with exit code 42 matching FailJob rule at index 1"
    assert ended(job(podFailurePolicy=RULES), [failed]) == ("FailureTarget", "PodFailurePolicy", message)


def test_a_disrupted_pod_is_not_counted_by_a_policy_that_ignores_it():
    failed = pod("Failed", code=42)
    failed["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    state, _ = decide(job(podFailurePolicy=RULES, backoffLimit=0), [failed])
    assert (state.failed, state.finished) == (0, None)


def test_restarts_in_place_count_against_the_limit():
    restarted = pod()
    restarted["status"]["containerStatuses"] = [{"name": "c", "restartCount": 2, "state": {"running": {}}}]
    given = job(backoffLimit=2)
    assert ended(given, [restarted]) is None
    given["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    assert ended(given, [restarted])[1] == "BackoffLimitExceeded"


def test_a_failed_index_keeps_its_pod_until_the_replacement_counts_its_failures():
    given = indexed(completions=2, parallelism=2, backoffLimitPerIndex=3)
    failed, running = pod("Failed", index=0, code=1, failures=1), pod(index=1)
    state, plan = decide(given, [failed, running], now=NOW + 3600)
    assert list(plan.create) == [0]
    accounting = job_accounting.account(given, state, PodCounts(2, 0, 0), None, NOW)
    assert not accounting.release
    replacement = job_pods.new_pod(given, 0, state.delayed[0])
    assert replacement["metadata"]["annotations"][job_failures.FAILURE_COUNT] == "2"
    state, _ = decide(given, [failed, running, pod(index=0, failures=2)], now=NOW + 3600)
    accounting = job_accounting.account(given, state, PodCounts(2, 0, 0), None, NOW)
    assert accounting.release == [failed]


def test_a_pod_of_an_indexed_job_carries_its_index_in_four_places():
    given = indexed(completions=2)
    given["metadata"]["name"] = "a" * 63
    made = job_pods.new_pod(given, 12)
    assert made["metadata"]["labels"][job_failures.COMPLETION_INDEX] == "12"
    assert made["metadata"]["annotations"][job_failures.COMPLETION_INDEX] == "12"
    assert made["spec"]["hostname"].endswith("-12")
    assert made["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    assert made["metadata"]["generateName"].endswith("-12-")
    assert len(made["metadata"]["generateName"]) == 58
    assert made["metadata"]["finalizers"] == [FINALIZER]
    assert given["spec"]["template"]["spec"]["containers"] == [{"name": "c"}]  # the template is not changed


def test_suspending_and_resuming_set_the_condition_and_the_start():
    suspended, reason = job_accounting.suspension(job({"startTime": "x"}, suspend=True), NOW)
    assert reason == "Suspended"
    assert "startTime" not in suspended
    assert job_accounting.suspension(job(suspended, suspend=True), NOW + 9) is None
    resumed, reason = job_accounting.suspension(job(suspended), NOW + 9)
    assert (reason, resumed["startTime"]) == ("Resumed", "2027-01-15T08:00:09Z")
    assert resumed["conditions"][0]["status"] == "False"
    assert job_accounting.suspension(job(), NOW) is None


class World:
    """A server with one Job, whose controller may stop before each of its writes and starts again."""

    def __init__(self, given, stops):
        self.job, self.pods, self.released = given, {}, set()
        self.stops, self.now = stops, NOW
        self.outcomes = {"succeeded": 0, "failed": 0}

    def write(self):
        if next(self.stops, False):
            raise InterruptedError

    def sync(self):
        self.now += 3600
        given = {**self.job, "status": dict(self.job["status"])}
        state = job_decision.assess(given, list(self.pods.values()), frozenset(), Backoff(), self.now)
        plan = job_decision.plan(given, state, self.now, cache_is_current=True, pace=PACE)
        for index in plan.create:
            self.write()
            made = job_pods.new_pod(given, index, state.delayed.get(index))
            uid = f"w-{next(_names)}"
            made["metadata"] |= {"uid": uid, "name": uid, "creationTimestamp": job_decision.rfc3339(self.now)}
            self.pods[uid] = {**made, "status": {"phase": "Running"}}
        for row in plan.delete:
            self.write()
            row["metadata"]["deletionTimestamp"] = job_decision.rfc3339(self.now)
            if not plan.keep_finalizers:
                row["metadata"]["finalizers"] = []
        active = len(state.active) + len(plan.create) - len(plan.delete)
        finished = state.finished or job_decision.completed(given, state, active, self.now)
        counts = PodCounts(active, 0, state.terminating + len(plan.delete))
        accounting = job_accounting.account(given, state, counts, finished, self.now)
        self.write()
        self.job["status"] = dict(accounting.status)
        left = set(accounting.tracked)
        for row in accounting.release:
            self.write()
            row["metadata"]["finalizers"] = []
            left.discard(row["metadata"]["uid"])
        counted = job_accounting.count_released(self.job["status"], left)
        self.write()
        self.job["status"] = job_accounting.finish(counted, accounting) or counted

    def end_pods(self, successes):
        """Ends running pods, and deletes what has no finalizer."""
        for uid, row in list(self.pods.items()):
            meta = row["metadata"]
            if meta.get("deletionTimestamp") and row["status"]["phase"] == "Running":
                row["status"]["phase"] = "Failed"
                self.outcomes["failed"] += 1
            elif row["status"]["phase"] == "Running":
                outcome = "succeeded" if next(successes, True) else "failed"
                self.outcomes[outcome] += 1
                row["status"] = {
                    "phase": outcome.title(),
                    "containerStatuses": [
                        {"name": "c", "state": {"terminated": {
                            "exitCode": int(outcome == "failed"), "finishedAt": job_decision.rfc3339(self.now),
                        }}}
                    ],
                }  # fmt: skip
            if not meta["finalizers"]:
                del self.pods[uid]


@settings(max_examples=150)
@given(
    st.sampled_from(["NonIndexed", "Indexed", "PerIndex"]),
    st.integers(1, 4),
    st.integers(1, 6),
    st.lists(st.booleans(), max_size=12),
    st.lists(st.booleans(), max_size=60),
)
def test_every_pod_is_counted_exactly_once_whenever_the_controller_stops(
    mode, parallelism, completions, outcomes, stops
):
    spec = {"parallelism": parallelism, "completions": completions, "backoffLimit": 4}
    if mode != "NonIndexed":
        spec["completionMode"] = "Indexed"
    if mode == "PerIndex":
        spec |= {"backoffLimitPerIndex": 1, "backoffLimit": 10**6}
    world, successes = World(job({}, **spec), iter(stops)), iter(outcomes)
    for _ in range(len(stops) + len(outcomes) + 60):
        if job_decision.finished_as(world.job):
            break
        try:
            world.sync()
        except InterruptedError:
            continue
        world.end_pods(successes)
    status = world.job["status"]
    end = job_decision.finished_as(world.job)
    assert end, status
    assert status["uncountedTerminatedPods"] == {}
    assert not any(row["metadata"]["finalizers"] for row in world.pods.values())
    if end == "Complete":
        assert status["succeeded"] == completions
    if mode == "NonIndexed":
        assert status.get("succeeded", 0) == world.outcomes["succeeded"]
    assert status.get("failed", 0) == world.outcomes["failed"]
