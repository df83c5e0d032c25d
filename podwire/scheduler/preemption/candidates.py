"""Finds the node on which a pod fits once pods of lower priority are evicted, and the fewest victims. Pure.

1. A pod is not eligible if its policy is Never, or while victims of an earlier attempt still leave its nominated node.
2. Each node whose rejection may be resolved is dry run: without all pods of lower priority, every filter must pass.
3. Victims are reprieved one by one, first those that violate a disruption budget, then by importance (priority, then
   age), as long as the filters still pass.
4. Of all candidates the one that hurts least is chosen: see `_cost`.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podwire.objects import times
from podwire.scheduler.feasibility import failure_on
from podwire.scheduler.framework import Filter, FilterAborted, Reasons, Unresolvable
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.preemption import budgets
from podwire.scheduler.snapshot import NodeInfo, Snapshot

NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"

DISRUPTION_TARGET, BY_SCHEDULER = "DisruptionTarget", "PreemptionByScheduler"

CANDIDATES_PERCENTAGE, CANDIDATES_ABSOLUTE = 10, 100
"""The search ends when so many candidates were found: this part of the nodes, but at least this number."""

_LOWEST_PRIORITY = -(2**31)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node on which the pod fits without these pods."""

    node: str
    victims: tuple[PodInfo, ...]
    """The most important first."""
    violations: int = 0
    """How many victims violate a disruption budget."""


@dataclass(frozen=True, slots=True)
class NoCandidate:
    message: str
    clears_nomination: bool = False
    """The nominated node does not help any more."""


def find(
    pod: PodInfo, snapshot: Snapshot, rejections: Mapping[str, Reasons], filters: Sequence[Filter]
) -> Candidate | NoCandidate:
    """Returns the best candidate; `rejections` are the reasons of the nodes that failed a filter, by name."""
    if pod.pod.spec.preemption_policy == "Never":
        return NoCandidate(NEVER)
    nominated = snapshot.nominations.node_of(pod.pod.uid)
    may_become_free = nominated in rejections and not isinstance(rejections[nominated], Unresolvable)
    if may_become_free and _is_leaving(pod, snapshot, nominated):
        return NoCandidate(WAITING)
    enough = max(len(snapshot.nodes) * CANDIDATES_PERCENTAGE // 100, CANDIDATES_ABSOLUTE)
    candidates: list[Candidate] = []
    reasons: Counter[str] = Counter()
    for node in snapshot.nodes:
        rejection = rejections.get(node.name)
        if rejection is None or isinstance(rejection, Unresolvable):
            reasons[NOT_HELPFUL] += 1
            continue
        candidate = dry_run(pod, snapshot, node, filters)
        if isinstance(candidate, Candidate):
            candidates.append(candidate)
            if len(candidates) >= enough:
                break
        else:
            reasons.update(candidate)
    if candidates:
        return min(candidates, key=_cost)
    histogram = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    message = f"0/{len(snapshot.nodes)} nodes are available: {histogram}."
    return NoCandidate(message, clears_nomination=bool(nominated))


def _is_leaving(pod: PodInfo, snapshot: Snapshot, name: str) -> bool:
    """Returns whether a victim of preemption still has to leave the node."""
    if pod.pod.spec.resource_claims and snapshot.claims.claims_of(snapshot.victims):
        return True  # their devices are free only when the claims are
    node = snapshot.node_info(name)
    return node is not None and any(
        existing.pod.spec.priority < pod.pod.spec.priority and (uid in snapshot.victims or _is_preempted(existing))
        for uid, existing in node.pods.items()
    )


def _is_preempted(info: PodInfo) -> bool:
    return info.pod.deleting and any(
        (condition.get("type"), condition.get("status"), condition.get("reason"))
        == (DISRUPTION_TARGET, "True", BY_SCHEDULER)
        for condition in info.pod.status.conditions
    )


def dry_run(pod: PodInfo, snapshot: Snapshot, node: NodeInfo, filters: Sequence[Filter]) -> Candidate | Reasons:
    """Returns the fewest victims on a node, or the reasons why the pod does not fit even without all of them."""
    lower = [info for info in node.pods.values() if info.pod.spec.priority < pod.pod.spec.priority]
    if not lower:
        return (NO_VICTIMS,)
    trial = node.copy()
    hypothetical = snapshot.with_node(trial)

    def rejection() -> Reasons:
        if pod.pod.spec.resource_claims:
            hypothetical.claims = snapshot.claims.without_pods(node.pods.keys() - trial.pods.keys())
        try:
            failure = failure_on(pod, hypothetical, trial, filters)
        except FilterAborted as error:
            return (str(error),)
        return failure[1] if failure else ()

    for info in lower:
        trial.remove(info.pod.uid)
    if reasons := rejection():
        return reasons
    lower.sort(key=importance)
    violating = budgets.violating(lower, snapshot.budgets.values())
    victims = []
    for info in sorted(lower, key=lambda info: info.pod.uid not in violating):  # stable: by importance within both
        trial.add(info)
        if rejection():
            trial.remove(info.pod.uid)
            victims.append(info)
    if not victims:  # the order in which filters see pods makes no difference, so this node would have passed
        return (NOT_HELPFUL,)
    violations = sum(1 for info in victims if info.pod.uid in violating)
    return Candidate(node.name, tuple(sorted(victims, key=importance)), violations)


def importance(info: PodInfo) -> tuple[int, float, str]:
    """Sorts the most important pod first: the highest priority, then the earliest start."""
    return -info.pod.spec.priority, _started(info), info.pod.uid


def _started(info: PodInfo) -> float:
    """Returns when the kubelet saw the pod; a pod that it has not seen yet is the youngest."""
    return times.parse(info.pod.status.start_time) if info.pod.status.start_time else math.inf


def _cost(candidate: Candidate) -> tuple[int, int, int, int, float]:
    """Compares candidates: fewest violated budgets, lowest highest priority, lowest sum of priorities, fewest pods, and
    then the latest start of the highest victims. Among equals the first node by name wins."""
    highest = candidate.victims[0].pod.spec.priority
    return (
        candidate.violations,
        highest,
        sum(info.pod.spec.priority - _LOWEST_PRIORITY for info in candidate.victims),
        len(candidate.victims),
        -min(_started(info) for info in candidate.victims if info.pod.spec.priority == highest),
    )
