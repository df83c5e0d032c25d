"""Decisions about the pods of a ReplicaSet or ReplicationController: which are deleted first, and the status. Pure."""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.controllers.apps.conditions import condition, with_condition, without_condition, without_zeros
from podwire.controllers.metadata import PartialObject, PodState
from podwire.objects.selectors import from_labels
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.watch import Object

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
REPLICA_FAILURE = "ReplicaFailure"
FREE_ROUNDS, LONGEST_DELAY, FAILURES_COUNT = 3, 30.0, 60.0
"""How often all pods of a set may fail before they are replaced with back-off, its longest pause, and the seconds for
which a failure counts."""
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_UNKNOWN_STATE = PodState()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod as a candidate for deletion."""

    pod: PartialObject
    state: PodState
    cost: int
    neighbours: int
    """Active pods of the same owners on its node."""
    restarts: tuple[int, int]
    """The most restarts of a container, and of a sidecar."""
    ready_since: float
    created: float


def candidate(pod: PartialObject, object_: Mapping[str, Any], neighbours: int) -> Candidate:
    """Reads what decides on a deletion."""
    state = pod.pod or _UNKNOWN_STATE
    status, spec = object_.get("status") or {}, object_.get("spec") or {}
    sidecars = {init["name"] for init in spec.get("initContainers") or () if init.get("restartPolicy") == "Always"}
    regular = max((container.get("restartCount", 0) for container in status.get("containerStatuses") or ()), default=0)
    beside = [container for container in status.get("initContainerStatuses") or () if container.get("name") in sidecars]
    annotations = (object_.get("metadata") or {}).get("annotations") or {}
    created = pod.metadata.creation_timestamp
    return Candidate(
        pod,
        state,
        _cost(annotations.get(DELETION_COST, "")),
        neighbours,
        (regular, max((container.get("restartCount", 0) for container in beside), default=0)),
        parse(state.ready_since) if state.ready and state.ready_since else 0.0,
        parse(created) if created else 0.0,
    )


def _cost(text: str) -> int:
    """Returns a deletion cost; what is not a 32-bit number without a leading plus or zero counts as none."""
    sign = text.removeprefix("-")
    if not sign.isascii() or not sign.isdecimal() or len(sign) > 10 or (sign[0] == "0" and text != "0"):
        return 0
    value = int(text)
    return value if -(2**31) <= value < 2**31 else 0


def pods_to_delete(candidates: Sequence[Candidate], count: int, now: float) -> list[PartialObject]:
    """Returns the pods to delete, those whose loss costs least first."""
    if count < len(candidates):

        def compare(one: Candidate, other: Candidate) -> int:
            return _compare(one, other, now)

        candidates = sorted(candidates, key=functools.cmp_to_key(compare))
    return [candidate_.pod for candidate_ in candidates[:count]]


def _compare(one: Candidate, other: Candidate, now: float) -> int:
    """Compares two candidates by upstream's rules, in their order; negative: `one` is deleted first."""
    first, second = one.state, other.state
    if bool(first.node_name) is not bool(second.node_name):
        return 1 if first.node_name else -1
    rules = (
        _PHASES.get(first.phase, 0) - _PHASES.get(second.phase, 0),
        first.ready - second.ready,
        one.cost - other.cost,
        other.neighbours - one.neighbours,
    )
    for difference in rules:
        if difference:
            return difference
    if first.ready and second.ready and one.ready_since != other.ready_since:
        return _younger_first(one, other, one.ready_since, other.ready_since, now)
    for mine, theirs in zip(one.restarts, other.restarts, strict=True):
        if mine != theirs:
            return theirs - mine
    if one.created != other.created:
        return _younger_first(one, other, one.created, other.created, now)
    return 0


def _younger_first(one: Candidate, other: Candidate, mine: float, theirs: float, now: float) -> int:
    """Compares ages on a logarithmic scale, so that pods of about the same age are deleted in a random order."""
    if not mine or not theirs:
        return 1 if mine else -1
    difference = _magnitude(now - mine) - _magnitude(now - theirs)
    return difference or (-1 if one.pod.uid < other.pod.uid else 1)


def _magnitude(age: float) -> int:
    nanoseconds = age * 1e9
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def neighbours_by_node(related: Iterable[PartialObject]) -> Counter[str]:
    """Counts the active pods of related owners by node."""
    return Counter((pod.pod or _UNKNOWN_STATE).node_name for pod in related if pod.active)


def replica_status(
    set_: Mapping[str, Any],
    active: Sequence[PartialObject],
    terminating: int | None,
    failure: str | None,
    now: float,
) -> Object:
    """Returns the status of a set with these pods; `failure` is the error of creations or deletions."""
    spec, before = set_["spec"], set_.get("status") or {}
    template = from_labels(((spec.get("template") or {}).get("metadata") or {}).get("labels") or {})
    minimum = spec.get("minReadySeconds") or 0
    states = [pod.pod or _UNKNOWN_STATE for pod in active]
    counts = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(template.matches(pod.labels) for pod in active),
        "readyReplicas": sum(state.ready for state in states),
        "availableReplicas": sum(state.available(minimum, now) for state in states),
        "observedGeneration": set_["metadata"].get("generation") or 0,
    }
    conditions = list(before.get("conditions") or ())
    if failure is None:
        conditions = without_condition(conditions, REPLICA_FAILURE)
    elif condition(before, REPLICA_FAILURE) is None:
        difference = len(active) - (spec.get("replicas") or 0)
        reason = "FailedCreate" if difference < 0 else "FailedDelete"
        new = {
            "type": REPLICA_FAILURE,
            "status": "True",
            "lastTransitionTime": rfc3339(now),
            "reason": reason,
            "message": failure,
        }
        conditions = with_condition(conditions, new)
    status = without_zeros({**counts, "conditions": conditions}, "replicas")
    return status if terminating is None else {**status, "terminatingReplicas": terminating}


def replacement_delay(pods: Iterable[PartialObject], replicas: int, now: float) -> float:
    """Returns the seconds to wait before failed pods are replaced.

    Pods that a node rejects fail as soon as they are bound. Upstream replaces them at once, without end; here the third
    time that as many as the set wants have failed within a minute begins a back-off.
    """
    failed = [
        parse(pod.metadata.creation_timestamp)
        for pod in pods
        if pod.pod is not None and pod.pod.phase == "Failed" and pod.metadata.creation_timestamp
    ]
    recent = [created for created in failed if now - created < FAILURES_COUNT]
    rounds = len(recent) // max(1, replicas)
    if rounds < FREE_ROUNDS:
        return 0.0
    return max(0.0, max(recent) + min(LONGEST_DELAY, 2.0 ** (rounds - FREE_ROUNDS)) - now)


def next_available(pods: Iterable[PartialObject], min_ready_seconds: int, now: float) -> float | None:
    """Returns the seconds until the next ready pod becomes available; None if none does."""
    waits = [
        pod.pod.available_in(min_ready_seconds, now)
        for pod in pods
        if pod.pod is not None and pod.pod.ready and not pod.pod.available(min_ready_seconds, now)
    ]
    return min(waits, default=None)
