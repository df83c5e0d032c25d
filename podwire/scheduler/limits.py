"""Limits of the scheduler: times and numbers that an operator or a test may change."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, where not said otherwise. The back-off doubles from `initial_backoff` up to `max_backoff`."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    flush: float = 300.0
    """All unschedulable pods are retried after this time, in case a watch event was missed."""
    concurrent_bindings: int = 16
    """More would only wait in the server, and each needs a connection."""
