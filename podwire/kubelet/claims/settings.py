"""Timeouts and intervals of the claim manager, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSettings:
    call: float = 45.0
    """Timeout of one call to a driver."""
    hand_over: float = 2.0
    """How long the end of a pod waits for drivers that are preparing its claims, before they are asked to unprepare."""
    slow: float = 5.0
    """Until an event says which drivers a pod waits for."""
    slices: float = 30.0
    """The ResourceSlices of a driver that is not connected for longer are deleted."""
    slices_retry: float = 5.0
    """Until a failed deletion of ResourceSlices is retried."""
    unprepare_backoff: tuple[float, float] = (1.0, 30.0)
    """Between two attempts to unprepare the claims of a pod that is being removed: first and longest pause."""
    health_pause: float = 5.0
    """Until the health stream of a driver that ended is opened again."""
    registration: float = 15.0
    """Until drivers count as registered after a start. Any of them may have prepared a claim of unknown drivers."""
    reconcile: float = 60.0
    """Between two looks for claims of pods that are gone."""
