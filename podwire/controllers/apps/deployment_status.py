"""The status of a Deployment: counts, availability, progress and its deadline. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.controllers.apps.conditions import condition, with_condition, without_condition, without_zeros
from podwire.controllers.apps.deployment_decisions import FOREVER, max_unavailable, replicas, status_count
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.watch import Object

PROGRESSING, AVAILABLE, REPLICA_FAILURE = "Progressing", "Available", "ReplicaFailure"
NEW_SET_AVAILABLE, TIMED_OUT, PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"


def new_condition(type_: str, status: str, reason: str, message: str, now: float) -> Object:
    return {
        "type": type_,
        "status": status,
        "lastUpdateTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
        "reason": reason,
        "message": message,
    }


def deadline_of(deployment: Mapping[str, Any]) -> int | None:
    """Returns the progress deadline in seconds; None for none."""
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds is None or seconds == FOREVER else int(seconds)


def progressing(deployment: Object, status: str, reason: str, message: str, now: float) -> Object:
    """Returns the Deployment with a condition Progressing; without a deadline, as it is."""
    if deadline_of(deployment) is None:
        return deployment
    before = deployment.get("status") or {}
    new = new_condition(PROGRESSING, status, reason, message, now)
    return {**deployment, "status": {**before, "conditions": with_condition(before.get("conditions") or (), new)}}


def with_pause_condition(deployment: Object, now: float) -> Object:
    """Returns the Deployment with a condition that says that it was paused or resumed, if it was."""
    current = condition(deployment.get("status") or {}, PROGRESSING)
    reason = (current or {}).get("reason")
    paused = bool(deployment["spec"].get("paused"))
    if reason == TIMED_OUT or paused is (reason == PAUSED):
        return deployment
    if paused:
        return progressing(deployment, "Unknown", PAUSED, "Deployment is paused", now)
    return progressing(deployment, "Unknown", "DeploymentResumed", "Deployment is resumed", now)


def counted(deployment: Object, new: Object | None, old: Sequence[Object], now: float) -> Object:
    """Returns the status with counts and availability; progress stays as it was."""
    every = [*([new] if new is not None else []), *old]
    before = deployment.get("status") or {}
    available = sum(status_count(set_, "availableReplicas") for set_ in every)
    enough = available >= replicas(deployment) - max_unavailable(deployment)
    availability = (
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        if enough
        else ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    )
    conditions = with_condition(before.get("conditions") or (), new_condition(AVAILABLE, *availability, now))
    status = {
        "observedGeneration": deployment["metadata"].get("generation") or 0,
        "replicas": sum(status_count(set_, "replicas") for set_ in every),
        "updatedReplicas": status_count(new, "replicas") if new is not None else 0,
        "readyReplicas": sum(status_count(set_, "readyReplicas") for set_ in every),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(map(replicas, every)) - available),
        "collisionCount": before.get("collisionCount"),
        "conditions": conditions,
    }
    shown = without_zeros(status)
    if before.get("collisionCount") is not None:
        shown["collisionCount"] = before["collisionCount"]
    terminating = _terminating(every)
    return shown if terminating is None else {**shown, "terminatingReplicas": terminating}


def _terminating(sets: Sequence[Object]) -> int | None:
    """Returns the terminating pods of all sets; None while one of them does not say."""
    total = 0
    for set_ in sets:
        status = set_.get("status") or {}
        if "terminatingReplicas" not in status and status.get("observedGeneration"):
            return None
        total += status.get("terminatingReplicas") or 0
    return total


def complete(deployment: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Returns whether all pods are of the new template and available."""
    wanted = replicas(deployment)
    counts = ("updatedReplicas", "replicas", "availableReplicas")
    return all((status.get(field) or 0) == wanted for field in counts) and (status.get("observedGeneration") or 0) >= (
        deployment["metadata"].get("generation") or 0
    )


def rolled_out(deployment: Object, new: Object | None, old: Sequence[Object], now: float) -> Object:
    """Returns the status during a rollout: counts, and whether it progresses, is complete or has timed out."""
    status = counted(deployment, new, old, now)
    conditions = list(status.get("conditions") or ())
    before = deployment.get("status") or {}
    if deadline_of(deployment) is None:
        conditions = without_condition(conditions, PROGRESSING)
    else:
        conditions = _progress(deployment, before, {**status, "conditions": conditions}, new, now)
    failure = _replica_failure(new, old)
    if failure is None:
        conditions = without_condition(conditions, REPLICA_FAILURE)
    else:
        conditions = with_condition(conditions, failure)
    return {**status, "conditions": conditions}


def _progress(deployment: Object, before: Object, status: Object, new: Object | None, now: float) -> list[Object]:
    conditions: list[Object] = status["conditions"]
    current = condition(before, PROGRESSING)
    finished = (current or {}).get("reason") == NEW_SET_AVAILABLE
    if finished and (status.get("replicas") or 0) == (status.get("updatedReplicas") or 0):
        return conditions
    kind, object_ = ("Deployment", deployment) if new is None else ("ReplicaSet", new)
    subject = f'{kind} "{object_["metadata"]["name"]}"'
    if complete(deployment, status):
        message = f"{subject} has successfully progressed."
        return with_condition(conditions, new_condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, now))
    if _advanced(before, status):
        updated = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", f"{subject} is progressing.", now)
        if current is not None and current.get("status") == "True":
            updated["lastTransitionTime"] = current.get("lastTransitionTime")
        return [*without_condition(conditions, PROGRESSING), updated]
    if timed_out(deployment, status, now):
        message = f"{subject} has timed out progressing."
        return with_condition(conditions, new_condition(PROGRESSING, "False", TIMED_OUT, message, now))
    return conditions


def _advanced(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Returns whether there are more new, ready or available pods, or fewer old ones."""

    def gained(field: str) -> bool:
        return (now.get(field) or 0) > (before.get(field) or 0)

    def old(status: Mapping[str, Any]) -> int:
        return (status.get("replicas") or 0) - (status.get("updatedReplicas") or 0)

    return any(map(gained, ("updatedReplicas", "readyReplicas", "availableReplicas"))) or old(now) < old(before)


def timed_out(deployment: Mapping[str, Any], status: Mapping[str, Any], now: float) -> bool:
    current, deadline = condition(status, PROGRESSING), deadline_of(deployment)
    if current is None or deadline is None or current.get("reason") == NEW_SET_AVAILABLE:
        return False
    return current.get("reason") == TIMED_OUT or parse(current["lastUpdateTime"]) + deadline < now


def deadline_in(deployment: Mapping[str, Any], status: Mapping[str, Any], now: float) -> float | None:
    """Returns the seconds until the progress deadline; None if there is nothing to wait for."""
    current, deadline = condition(status, PROGRESSING), deadline_of(deployment)
    over = current is None or current.get("reason") in (TIMED_OUT, NEW_SET_AVAILABLE)
    if current is None or over or deadline is None or complete(deployment, status):
        return None
    return max(0.0, parse(current["lastUpdateTime"]) + deadline - now) + 1.0


def _replica_failure(new: Object | None, old: Sequence[Object]) -> Object | None:
    """Returns the failure to create or delete pods of the new set, else of another."""
    for set_ in (*([new] if new is not None else []), *old):
        failure = condition(set_.get("status") or {}, REPLICA_FAILURE)
        if failure is not None:
            return {**failure, "lastUpdateTime": failure.get("lastTransitionTime")}
    return None
