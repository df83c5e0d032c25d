"""From single results to what counts. Pure: results in, standing out.

A probe must pass, or fail, so many times in a row before its standing changes. Startup and liveness probes settle:
a startup probe once it has passed or failed, a liveness probe once it has failed; the next container begins anew.
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
    """How a container stands with one of its probes."""

    passed: bool | None
    """None: nothing is known yet."""
    last: bool | None = None
    run: int = 0
    """How often in a row the last result came."""
    settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhealthy:
    """A container that must be killed for the sake of its health."""

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
    """Where a container stands that had passed before this kubelet came."""
    return ProbeState(passed=True, settled=kind is Kind.STARTUP)


def after(kind: Kind, probe: Probe, standing: ProbeState, passed: bool) -> ProbeState:
    """The standing after one more result."""
    run = standing.run + 1 if standing.last == passed else 1
    if run < (probe.success_threshold if passed else probe.failure_threshold):
        return ProbeState(passed=standing.passed, last=passed, run=run)
    settled = kind is Kind.STARTUP or (kind is Kind.LIVENESS and not passed)
    return ProbeState(passed=passed, last=passed, run=run, settled=settled)


def verdict(kind: Kind, probe: Probe, standing: ProbeState, container: str) -> Unhealthy | None:
    """Whether the container must be killed. Not being ready is no reason."""
    if kind is Kind.READINESS or standing.passed is not False:
        return None
    message = f"Container {container} failed {kind.value.lower()} probe"
    return Unhealthy(message=message, grace_seconds=probe.termination_grace_period_seconds)


def next_due(due: float, period: float, now: float) -> float:
    """When to ask again; rounds that were missed while an answer took its time are not made up for."""
    return max(due + period, now)
