"""Decides about a Job: which pods to create and delete, when it is finished, and how its pods are counted. Pure.

Every pod of a Job is counted exactly once, although pods are deleted and writes fail in between. That takes two writes
of the status around the removal of the pods' finalizers:

1. `account` adds the finished pods' uids to `status.uncountedTerminatedPods`; the controller writes the status.
2. The controller removes the finalizer of these pods: from now on they may be deleted.
3. `count_released` moves the uids of pods without a finalizer from the list to the counters; the controller writes the
   status, together with the final condition (`finish`).

A controller that stops after step 1 or 2 starts again: a uid in the list is not added again, and one without a
finalizer is counted. Indexed Jobs list the succeeded indexes instead, which cannot be counted twice either.

The end of a Job has two conditions, too: `FailureTarget` or `SuccessCriteriaMet` is written in step 1, before pods may
disappear, and `Failed` or `Complete` follows when no pod is left to count or terminating.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from podwire.controllers.batch import indexes, job_failures
from podwire.controllers.batch.indexes import Intervals
from podwire.controllers.batch.job_failures import (
    Backoff,
    completion_index,
    is_failed,
    is_tracked,
    phase,
    policy_verdict,
)
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.watch import Object

JOB_CONTROLLER = "kubernetes.io/job-controller"
MOST_UNCOUNTED = 500
"""Pods that one sync counts, so that the lists of uids stay below 20 KB."""
COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"

Condition = dict[str, Any]


def managed_elsewhere(job: Object) -> bool:
    """Returns whether another controller is responsible for the Job."""
    return job["spec"].get("managedBy") not in (None, JOB_CONTROLLER)


def true_condition(job: Object, *types: str) -> Condition | None:
    rows = (job.get("status") or {}).get("conditions") or ()
    return next((row for row in rows if row.get("type") in types and row.get("status") == "True"), None)


def finished_as(job: Object) -> str:
    """Returns Complete or Failed; empty while the Job is not finished."""
    row = true_condition(job, COMPLETE, FAILED)
    return str(row["type"]) if row else ""


def is_indexed(spec: Mapping[str, Any]) -> bool:
    return spec.get("completionMode") == "Indexed"


def is_suspended(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("suspend"))


def _condition(type_: str, reason: str, message: str, now: float, status: str = "True") -> Condition:
    moment = rfc3339(now)
    return {
        "type": type_,
        "status": status,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }


def with_condition(conditions: Sequence[Condition], new: Condition) -> list[Condition] | None:
    """Returns the conditions with one set; None if nothing changes. A condition that was never true is not added as
    false."""
    old = next((row for row in conditions if row.get("type") == new["type"]), None)
    if old is None:
        return None if new["status"] == "False" else [*conditions, new]
    if all(old.get(key) == new[key] for key in ("status", "reason", "message")):
        return None
    return [new if row is old else row for row in conditions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The state of a Job and of its pods."""

    pods: Sequence[Object]
    released: AbstractSet[str]
    """Uids of pods whose finalizer was removed, although the cache may not know it yet."""
    active: Sequence[Object]
    ready: int
    terminating: int
    succeeded: int
    failed: int
    backoff: Backoff
    finished: Condition | None
    """The condition FailureTarget, SuccessCriteriaMet or, if the former was written before, Failed."""
    recheck: float | None
    """Seconds until the active deadline."""
    succeeded_indexes: Intervals = ()
    written_indexes: Intervals = ()
    """The succeeded indexes of the status."""
    failed_indexes: Intervals | None = None
    delayed: Mapping[int, Object] = field(default_factory=dict)
    """By index, the failed pod that keeps its finalizer until a replacement has taken over its failure count."""


def _valid(job: Object, pod: Object, released: AbstractSet[str]) -> bool:
    """Returns whether a pod can be counted: it has the finalizer and, in an Indexed Job, an index."""
    if not is_tracked(pod) or pod["metadata"]["uid"] in released:
        return False
    return not is_indexed(job["spec"]) or _index(job, pod) is not None


def _index(job: Object, pod: Object) -> int | None:
    """Returns a pod's index, if it is one of the Job."""
    index = completion_index(pod)
    return index if index is not None and index < (job["spec"].get("completions") or 0) else None


def assess(job: Object, pods: Sequence[Object], released: AbstractSet[str], backoff: Backoff, now: float) -> Assessment:
    """Evaluates a Job in upstream's order: a recorded end, failures, then successes."""
    spec, status = job["spec"], job.get("status") or {}
    uncounted = status.get("uncountedTerminatedPods") or {}
    listed = {part: set(uncounted.get(part) or ()) for part in ("succeeded", "failed")}
    countable = [pod for pod in pods if _valid(job, pod, released)]
    new_succeeded = [
        pod for pod in countable if phase(pod) == "Succeeded" and pod["metadata"]["uid"] not in listed["succeeded"]
    ]
    new_failed = [pod for pod in countable if is_failed(pod, spec) and pod["metadata"]["uid"] not in listed["failed"]]
    policy = spec.get("podFailurePolicy")
    failed = (status.get("failed") or 0) + len(listed["failed"])
    failed += sum(1 for pod in new_failed if policy_verdict(policy, pod).counts)
    succeeded = (status.get("succeeded") or 0) + len(new_succeeded) + len(listed["succeeded"])
    finished, recheck = _end_by_failures(job, pods, failed, now)
    written: Intervals = ()
    current: Intervals = ()
    failed_indexes = None
    if is_indexed(spec):
        completions = spec.get("completions") or 0
        written = indexes.parse(status.get("completedIndexes") or "", completions)
        current = indexes.union(
            written,
            indexes.of(
                index
                for pod in pods
                if phase(pod) == "Succeeded" and is_tracked(pod) and (index := _index(job, pod)) is not None
            ),
        )
        succeeded = indexes.total(current)
        if spec.get("backoffLimitPerIndex") is not None:
            failed_indexes = _failed_indexes(job, pods)
        finished = finished or _end_by_indexes(spec, current, failed_indexes, now)
    active = [pod for pod in pods if job_failures.is_active(pod)]
    return Assessment(
        pods=pods,
        released=released,
        active=active,
        ready=sum(map(job_failures.is_ready, active)),
        terminating=sum(map(job_failures.is_terminating, pods)),
        succeeded=succeeded,
        failed=failed,
        backoff=backoff.after(new_succeeded, new_failed),
        finished=finished,
        recheck=recheck,
        succeeded_indexes=current,
        written_indexes=written,
        failed_indexes=failed_indexes,
        delayed={} if failed_indexes is None else _delayed(job, countable, active, current, failed_indexes),
    )


def _end_by_failures(
    job: Object, pods: Sequence[Object], failed: int, now: float
) -> tuple[Condition | None, float | None]:
    """Returns the condition that ends the Job, and otherwise the seconds until its deadline."""
    spec = job["spec"]
    if (met := true_condition(job, SUCCESS_CRITERIA_MET)) is not None:
        return met, None
    if (target := true_condition(job, FAILURE_TARGET)) is not None:
        return _condition(FAILED, target.get("reason", ""), target.get("message", ""), now), None
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        for pod in pods:
            if is_failed(pod, spec) and (message := policy_verdict(policy, pod).message):
                return _condition(FAILURE_TARGET, "PodFailurePolicy", message, now), None
    limit = spec.get("backoffLimit", 6)
    if failed > limit or _restarts_exceed(spec, pods, limit):
        return _failure("BackoffLimitExceeded", "Job has reached the specified backoff limit", now), None
    deadline, started = spec.get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if deadline is None or is_suspended(spec):
        return None, None
    left = deadline - (now - parse(started)) if started else float(deadline)
    if started and left <= 0:
        return _failure("DeadlineExceeded", "Job was active longer than specified deadline", now), None
    return None, left


def _failure(reason: str, message: str, now: float) -> Condition:
    return _condition(FAILURE_TARGET, reason, message, now)


def _restarts_exceed(spec: Mapping[str, Any], pods: Sequence[Object], limit: int) -> bool:
    """Returns whether containers that are restarted in place have failed too often."""
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts: int = sum(
        row.get("restartCount", 0)
        for pod in pods
        if phase(pod) in ("Running", "Pending")
        for part in ("initContainerStatuses", "containerStatuses")
        for row in pod["status"].get(part) or ()
    )
    return restarts > 0 if limit == 0 else restarts >= limit


def _failed_indexes(job: Object, pods: Sequence[Object]) -> Intervals:
    spec = job["spec"]
    written = indexes.parse((job.get("status") or {}).get("failedIndexes") or "", spec.get("completions") or 0)

    def ends_index(pod: Object) -> bool:
        if not is_failed(pod, spec):
            return False
        verdict = policy_verdict(spec.get("podFailurePolicy"), pod)
        exhausted = job_failures.failure_counts(pod)[0] >= spec["backoffLimitPerIndex"]
        return verdict.action == "FailIndex" or (verdict.counts and exhausted)

    new = [index for pod in pods if is_tracked(pod) and (index := _index(job, pod)) is not None and ends_index(pod)]
    return indexes.union(written, indexes.of(new))


def _end_by_indexes(
    spec: Mapping[str, Any], succeeded: Intervals, failed: Intervals | None, now: float
) -> Condition | None:
    completions = spec.get("completions") or 0
    if failed is not None:
        count, most = indexes.total(failed), spec.get("maxFailedIndexes")
        if most is not None and count > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return _failure("MaxFailedIndexesExceeded", message, now)
        if count and count + indexes.total(succeeded) >= completions:
            return _failure("FailedIndexes", "Job has failed indexes", now)
    rules = (spec.get("successPolicy") or {}).get("rules") or ()
    for place, rule in enumerate(rules if succeeded else ()):
        if success_rule_matches(rule, succeeded, completions):
            return _condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", f"Matched rules at index {place}", now)
    return None


def success_rule_matches(rule: Mapping[str, Any], succeeded: Intervals, completions: int) -> bool:
    """Returns whether all indexes of a rule, or as many as it demands, have succeeded."""
    count = rule.get("succeededCount")
    if rule.get("succeededIndexes") is None:
        return count is not None and indexes.total(succeeded) >= count
    required = indexes.parse(rule["succeededIndexes"], completions)
    common = indexes.overlap(required, succeeded)
    return bool(required) and (common == indexes.total(required) or (count is not None and common >= count))


def _delayed(
    job: Object,
    countable: Sequence[Object],
    active: Sequence[Object],
    succeeded: Intervals,
    failed: Intervals,
) -> dict[int, Object]:
    """Returns the last failed pod of each index that waits for a replacement."""
    running = {completion_index(pod) for pod in active}
    last: dict[int, Object] = {}
    for pod in countable:
        index = _index(job, pod)
        if index is None or not is_failed(pod, job["spec"]) or index in running:
            continue
        if indexes.contains(succeeded, index) or indexes.contains(failed, index):
            continue
        if index not in last or _rank(last[index]) <= _rank(pod):
            last[index] = pod
    return last


def _rank(pod: Object) -> tuple[int, float]:
    return sum(job_failures.failure_counts(pod)), job_failures.finish_time(pod)


@dataclass(frozen=True, slots=True)
class Plan:
    """The pods to delete or to create; never both in one sync."""

    delete: Sequence[Object] = ()
    keep_finalizers: bool = False
    """The deleted pods are counted as failed; otherwise they are released first and not counted."""
    create: Sequence[int | None] = ()
    """The index of each new pod; None in a Job without indexes."""
    recheck: float | None = None
    """Seconds until the back-off allows new pods."""
    managed: bool = True
    """Whether the number of pods was compared with the Job's wishes, so that Suspended may be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many pods one sync changes, and the pauses after failures in seconds."""

    most_pods: int = 500
    first_pause: float = 10.0
    longest_pause: float = 600.0


def plan(job: Object, state: Assessment, now: float, *, cache_is_current: bool, pace: Pace) -> Plan:
    """Decides which pods to create or delete. While the cache lacks our own last writes, only a finished Job acts."""
    spec, active = job["spec"], len(state.active)
    if state.finished is not None:
        return Plan(delete=state.active, keep_finalizers=True, managed=False)
    if not cache_is_current or job["metadata"].get("deletionTimestamp"):
        return Plan(managed=False)
    if is_suspended(spec):
        return Plan(delete=surplus_pods(spec, state.active, active)[: pace.most_pods])
    wanted = _wanted(spec, state)
    if delete := surplus_pods(spec, state.active, max(0, active - wanted)):
        return Plan(delete=delete[: pace.most_pods])
    missing = wanted - active - (state.terminating if job_failures.only_replaces_failed(spec) else 0)
    if missing <= 0:
        return Plan()
    missing = min(missing, pace.most_pods)
    if state.failed_indexes is not None:
        return _plan_indexes(job, state, now, missing, pace)
    if (wait := state.backoff.remaining(now, pace.first_pause, pace.longest_pause)) > 0:
        return Plan(recheck=wait)
    if not is_indexed(spec):
        return Plan(create=[None] * missing)
    return Plan(create=indexes.first_outside(_taken(job, state), missing, spec.get("completions") or 0))


def _wanted(spec: Mapping[str, Any], state: Assessment) -> int:
    """Returns how many pods should be active."""
    parallelism: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    if completions is None:  # a success ends the work queue: the other pods may finish
        return len(state.active) if state.succeeded > 0 else parallelism
    return max(0, min(parallelism, completions - state.succeeded))


def _plan_indexes(job: Object, state: Assessment, now: float, missing: int, pace: Pace) -> Plan:
    """Creates pods for the indexes whose own back-off is over."""
    free = indexes.first_outside(_taken(job, state), missing, job["spec"].get("completions") or 0)
    waits = {
        index: job_failures.index_backoff(state.delayed.get(index)).remaining(now, pace.first_pause, pace.longest_pause)
        for index in free
    }
    later = min((wait for wait in waits.values() if wait > 0), default=None)
    return Plan(create=[index for index, wait in waits.items() if wait == 0], recheck=later)


def completed(job: Object, state: Assessment, active: int, now: float) -> Condition | None:
    """Returns the condition of a Job with enough successes and no pod left."""
    wanted = job["spec"].get("completions")
    enough = state.succeeded > 0 if wanted is None else state.succeeded >= wanted
    if not enough or active:
        return None
    message = "Reached expected number of succeeded pods"
    return _condition(SUCCESS_CRITERIA_MET, "CompletionsReached", message, now)


def _taken(job: Object, state: Assessment) -> Intervals:
    """Returns the indexes that need no new pod."""
    busy = [completion_index(pod) for pod in state.active]
    if job_failures.only_replaces_failed(job["spec"]):
        busy += [completion_index(pod) for pod in state.pods if job_failures.is_terminating(pod)]
    taken = indexes.union(state.succeeded_indexes, indexes.of(index for index in busy if index is not None))
    return indexes.union(taken, state.failed_indexes or ())


def surplus_pods(spec: Mapping[str, Any], active: Sequence[Object], at_least: int) -> list[Object]:
    """Returns the pods to delete: those with an invalid or a repeated index, and those that have done least."""
    surplus: list[Object] = []
    left = sorted(active, key=_progress)
    if is_indexed(spec):
        best: dict[int, Object] = {}
        completions = spec.get("completions") or 0
        for pod in left:
            index = completion_index(pod)
            if index is None or index >= completions:
                surplus.append(pod)
            else:
                if index in best:
                    surplus.append(best[index])
                best[index] = pod  # later ones have made more progress
        kept = {pod["metadata"]["uid"] for pod in best.values()}
        left = [pod for pod in left if pod["metadata"]["uid"] in kept]
    return [*surplus, *left[: max(0, at_least - len(surplus))]]


_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def _progress(pod: Object) -> tuple[bool, int, bool, float, int, float]:
    """Orders pods for deletion: unbound, pending, unready, ready for a short time, restarted often, new ones first."""
    ready = job_failures.condition(pod, "Ready")
    is_ready, since = ready.get("status") == "True", ready.get("lastTransitionTime")
    restarts = max((row.get("restartCount", 0) for row in pod["status"].get("containerStatuses") or ()), default=0)
    created = pod["metadata"].get("creationTimestamp")
    return (
        bool(pod["spec"].get("nodeName")),
        _PHASES.get(phase(pod), 0),
        is_ready,
        -parse(since) if is_ready and since else 0.0,
        -restarts,
        -parse(created) if created else 0.0,
    )
