"""Decides about a PodDisruptionBudget: how many of its pods may be evicted now. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.controllers.apps.conditions import scaled_value
from podwire.controllers.metadata import PartialObject
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.watch import Object

DELETION_TIMEOUT = 120.0
"""Seconds after which an evicted pod that still exists counts again: its deletion has failed."""
ALLOWED = "DisruptionAllowed"


def needs_scale(spec: Mapping[str, Any]) -> bool:
    """Returns whether the budget depends on the desired number of pods, and not only on those that exist."""
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def demand(spec: Mapping[str, Any], scale: int, pods: int) -> tuple[int, int]:
    """Returns the expected pods, and how many of them must be healthy. `scale` is what their controllers desire."""
    most = spec.get("maxUnavailable")
    if most is not None:
        return scale, max(0, scale - scaled_value(most, scale, round_up=True))
    least = spec.get("minAvailable")
    if isinstance(least, str):
        return scale, scaled_value(least, scale, round_up=True)
    return pods, int(least or 0) if least is not None else 0


@dataclass(frozen=True, slots=True)
class Disrupted:
    """Evicted pods that are not deleted yet, by name and time of eviction."""

    pods: Mapping[str, str]
    overdue: Sequence[PartialObject]
    """Pods that should have been deleted by now."""
    recheck: float | None
    """Seconds until the next one is overdue."""


def disrupted(budget: Object, pods: Sequence[PartialObject], now: float) -> Disrupted:
    """Returns the evictions whose pods the feed still shows as alive."""
    recorded = (budget.get("status") or {}).get("disruptedPods") or {}
    kept, overdue, waits = dict[str, str](), list[PartialObject](), list[float]()
    for pod in pods:
        if pod.deleting or pod.name not in recorded:
            continue
        left = parse(recorded[pod.name]) + DELETION_TIMEOUT - now
        if left < 0:
            overdue.append(pod)
        else:
            waits.append(left)
            kept[pod.name] = recorded[pod.name]
    return Disrupted(kept, overdue, min(waits, default=None))


def healthy(pods: Sequence[PartialObject], evicted: Mapping[str, str]) -> int:
    """Returns how many pods are ready, neither deleted nor evicted."""
    return sum(
        1 for pod in pods if not pod.deleting and pod.name not in evicted and pod.pod is not None and pod.pod.ready
    )


def status_of(
    budget: Object, *, expected: int, desired: int, current: int, evicted: Mapping[str, str], now: float
) -> dict[str, Any]:
    """Returns the status of a budget."""
    allowed = max(0, current - desired) if expected > 0 else 0
    generation = budget["metadata"].get("generation", 0)
    status: dict[str, Any] = {
        "currentHealthy": current,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": generation,
    }
    if evicted:
        status["disruptedPods"] = dict(evicted)
    reason = "SufficientPods" if allowed else "InsufficientPods"
    status["conditions"] = _with_condition(budget, "True" if allowed else "False", reason, "", generation, now)
    return status


def failed_status(budget: Object, message: str, now: float) -> dict[str, Any]:
    """Returns the status of a budget that cannot be calculated: nothing may be evicted."""
    status = dict(budget.get("status") or {})
    status["disruptionsAllowed"] = 0
    observed = status.get("observedGeneration", 0)
    status["conditions"] = _with_condition(budget, "False", "SyncFailed", message, observed, now)
    return status


def _with_condition(
    budget: Object, state: str, reason: str, message: str, generation: int, now: float
) -> list[dict[str, Any]]:
    rows = (budget.get("status") or {}).get("conditions") or []
    old: Mapping[str, Any] = next((row for row in rows if row.get("type") == ALLOWED), {})
    since = old.get("lastTransitionTime") if old.get("status") == state else None
    new = {
        "type": ALLOWED,
        "status": state,
        "observedGeneration": generation,
        "lastTransitionTime": since or rfc3339(now),
        "reason": reason,
        "message": message,
    }
    return [*(row for row in rows if row.get("type") != ALLOWED), new]
