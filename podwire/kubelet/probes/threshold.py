"""Thresholds of probes: from single results to the state of a probe. Pure.

A probe must pass `successThreshold` or fail `failureThreshold` times in a row before its state changes. Final states
are those of a startup probe that has passed or failed, and of a liveness probe that has failed.
"""

import enum
from dataclasses import dataclass

from podwire.objects.containers import Container, Probe


class Kind(enum.StrEnum):
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"

    def of(self, container: Container) -> Probe | None:
        match self:
            case Kind.STARTUP:
                return container.startup_probe
            case Kind.LIVENESS:
                return container.liveness_probe
            case Kind.READINESS:
                return container.readiness_probe


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeState:
    """The state of one probe of a container."""

    passed: bool | None
    """None: nothing is known yet."""
    last: bool | None = None
    run: int = 0
    """How often in a row the last result was the same."""
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhealthy:
    """A container that must be killed because a probe failed."""

    message: str
    """`Container app failed liveness probe`"""
    grace_seconds: int | None
    """Instead of the pod's."""


BEGINNING = {
    Kind.STARTUP: ProbeState(passed=None),
    Kind.LIVENESS: ProbeState(passed=True),
    Kind.READINESS: ProbeState(passed=False),
}


def adopted(kind: Kind) -> ProbeState:
    """The state of a probe that had passed before this kubelet started."""
    return ProbeState(passed=True, final=kind is Kind.STARTUP)


def after(kind: Kind, probe: Probe, state: ProbeState, passed: bool) -> ProbeState:
    """The state after one more result."""
    run = state.run + 1 if state.last == passed else 1
    if run < (probe.success_threshold if passed else probe.failure_threshold):
        return ProbeState(passed=state.passed, last=passed, run=run)
    final = kind is Kind.STARTUP or (kind is Kind.LIVENESS and not passed)
    return ProbeState(passed=passed, last=passed, run=run, final=final)


def unhealthy(kind: Kind, probe: Probe, state: ProbeState, container: str) -> Unhealthy | None:
    """Why the container must be killed, None if it need not be: a readiness probe is not a reason."""
    if kind is Kind.READINESS or state.passed is not False:
        return None
    message = f"Container {container} failed {kind.value.lower()} probe"
    return Unhealthy(message=message, grace_seconds=probe.termination_grace_period_seconds)


def next_due(due: float, period: float, now: float) -> float:
    """The time of the next probe; periods that were missed while an answer was slow are skipped."""
    return max(due + period, now)
