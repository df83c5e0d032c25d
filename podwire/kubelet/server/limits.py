"""Timeouts and pauses of the kubelet's server, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    call: float = 30.0
    """For one call to the runtime."""
    reach: float = 5.0
    """For how long a runtime that does not listen is called again: it may be restarting."""
    pauses: tuple[float, float] = (0.05, 0.5)
    """Between two such calls: first and longest."""
    status: float = 10.0
    """For the question whether a container whose log is followed has exited."""
    first_rates: float = 0.5
    """Between the two readings of a first request for rates."""
    log_closed: tuple[float, ...] = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
    """Pauses of polling after a writer closed the log: its container has exited and the runtime will report it in a
    moment, or the log is being rotated and the new file will exist in a moment. Afterwards the next event is awaited,
    unless the runtime does not answer: then the last pause is repeated."""
