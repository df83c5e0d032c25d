"""Counts the finished pods of a Job exactly once: the new status and the pods to release. Pure.

`job_decision.py` describes the steps.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from podwire.controllers.batch import indexes
from podwire.controllers.batch.job_decision import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    MOST_UNCOUNTED,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    Assessment,
    Condition,
    is_indexed,
    is_suspended,
    with_condition,
)
from podwire.controllers.batch.job_failures import completion_index, is_failed, is_tracked, phase, policy_verdict
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.watch import Object


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods after this sync has created and deleted some."""

    active: int
    ready: int
    terminating: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """A status to write before the pods are released."""

    status: Mapping[str, Any]
    changed: bool
    release: Sequence[Object]
    tracked: frozenset[str]
    """The uids of all pods with the finalizer, including those to release."""
    finished: Condition | None
    """The final condition, to be added when nothing is left to count."""
    complete: bool
    """Whether all finished pods are listed; otherwise the limit of one sync was reached."""


def account(job: Object, state: Assessment, counts: PodCounts, finished: Condition | None, now: float) -> Accounting:
    """Lists the finished pods in the status, and sets the interim condition of a Job that ends."""
    before = job.get("status") or {}
    tracked = frozenset(
        pod["metadata"]["uid"] for pod in state.pods if is_tracked(pod) and pod["metadata"]["uid"] not in state.released
    )
    status = {**before, "ready": counts.ready, "terminating": counts.terminating}
    _set_count(status, "active", counts.active)
    status = count_released(status, tracked)
    if "startTime" not in status and not is_suspended(job["spec"]):
        status["startTime"] = rfc3339(now)
    listed = status["uncountedTerminatedPods"]
    lists = {part: list(listed.get(part) or ()) for part in ("succeeded", "failed")}
    known = {part: frozenset(uids) for part, uids in lists.items()}
    release: list[Object] = []
    new_indexes: list[int] = []
    complete = True
    pods = sorted(state.pods, key=_by_index) if is_indexed(job["spec"]) else state.pods
    for pod in pods:
        uid = pod["metadata"]["uid"]
        if uid not in tracked or not _may_be_released(job, state, pod, finished):
            continue
        release.append(pod)
        outcome = _outcome(job, pod, known, finished)
        if outcome == "succeeded" and is_indexed(job["spec"]):
            index = completion_index(pod)
            if index is not None and not indexes.contains(state.written_indexes, index):
                new_indexes.append(index)
        elif outcome and uid not in known[outcome]:
            lists[outcome].append(uid)
        if len(new_indexes) + sum(map(len, lists.values())) >= MOST_UNCOUNTED:
            complete = False
            break
    status["uncountedTerminatedPods"] = {part: uids for part, uids in lists.items() if uids}
    if is_indexed(job["spec"]):
        _set_indexes(status, state)
    final = finished
    if finished is not None and finished["type"] in (FAILURE_TARGET, SUCCESS_CRITERIA_MET):
        status["conditions"] = (
            with_condition(status.get("conditions") or [], finished) or status.get("conditions") or []
        )
        moment = rfc3339(now)
        type_ = FAILED if finished["type"] == FAILURE_TARGET else COMPLETE
        final = {**finished, "type": type_, "lastProbeTime": moment, "lastTransitionTime": moment}
    return Accounting(
        status=status,
        changed=status != before,
        release=release,
        tracked=tracked,
        finished=final,
        complete=complete,
    )


def _by_index(pod: Object) -> int:
    index = completion_index(pod)
    return -1 if index is None else index


def _may_be_released(job: Object, state: Assessment, pod: Object, finished: Condition | None) -> bool:
    if job["metadata"].get("deletionTimestamp") or finished is not None or phase(pod) == "Succeeded":
        return True
    if not is_failed(pod, job["spec"]):
        return False
    index = completion_index(pod)
    waiting = state.delayed.get(index) if index is not None else None
    return waiting is None or waiting["metadata"]["uid"] != pod["metadata"]["uid"]


def _outcome(job: Object, pod: Object, known: Mapping[str, AbstractSet[str]], finished: Condition | None) -> str:
    """Returns the list that a released pod belongs to; empty for one that is not counted."""
    spec, index = job["spec"], completion_index(pod)
    counted_index = not is_indexed(spec) or (index is not None and index < (spec.get("completions") or 0))
    if phase(pod) == "Succeeded" and pod["metadata"]["uid"] not in known["failed"]:
        return "succeeded" if counted_index else ""
    job_failed = finished is not None and finished["type"] != SUCCESS_CRITERIA_MET
    if not (is_failed(pod, spec) or job_failed):
        return ""
    return "failed" if counted_index and policy_verdict(spec.get("podFailurePolicy"), pod).counts else ""


def _set_indexes(status: dict[str, Any], state: Assessment) -> None:
    """Sets the indexes that have succeeded and failed. The listed ones need no uids: an index counts once."""
    _set_count(status, "succeeded", indexes.total(state.succeeded_indexes))
    text = indexes.text_of(state.succeeded_indexes)
    if text:
        status["completedIndexes"] = text
    else:
        status.pop("completedIndexes", None)
    if state.failed_indexes is not None:
        status["failedIndexes"] = indexes.text_of(state.failed_indexes)
    else:
        status.pop("failedIndexes", None)


def _set_count(status: dict[str, Any], field: str, number: int) -> None:
    if number:
        status[field] = number
    else:
        status.pop(field, None)


def count_released(status: Mapping[str, Any], tracked: AbstractSet[str]) -> dict[str, Any]:
    """Moves pods that no longer have the finalizer from the lists to the counters."""
    listed = status.get("uncountedTerminatedPods") or {}
    counted, left = dict(status), {}
    for part in ("succeeded", "failed"):
        uids = listed.get(part) or ()
        kept = [uid for uid in uids if uid in tracked]
        if kept:
            left[part] = kept
        _set_count(counted, part, (counted.get(part) or 0) + len(uids) - len(kept))
    counted["uncountedTerminatedPods"] = left
    return counted


def finish(status: Mapping[str, Any], accounting: Accounting) -> dict[str, Any] | None:
    """Returns the status of the finished Job; None while pods are uncounted or still terminating."""
    final = accounting.finished
    if final is None or not accounting.complete or status.get("terminating") or status["uncountedTerminatedPods"]:
        return None
    conditions = status.get("conditions") or []
    done = {**status, "conditions": with_condition(conditions, final) or conditions}
    if final["type"] == COMPLETE:
        done["completionTime"] = final["lastTransitionTime"]
    return done


def suspension(job: Object, now: float) -> tuple[dict[str, Any], str] | None:
    """Returns the status after the Job was suspended or resumed, and the event's reason; None if nothing changes."""
    status = job.get("status") or {}
    suspended, moment = is_suspended(job["spec"]), rfc3339(now)
    row = {
        "type": SUSPENDED,
        "status": "True" if suspended else "False",
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
        "reason": "JobSuspended" if suspended else "JobResumed",
        "message": "Job suspended" if suspended else "Job resumed",
    }
    conditions = with_condition(status.get("conditions") or [], row)
    if conditions is None:
        return None
    changed = {**status, "conditions": conditions}
    if suspended:
        changed.pop("startTime", None)
    else:
        changed["startTime"] = moment
    return changed, "Suspended" if suspended else "Resumed"
