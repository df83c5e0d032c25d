"""Limits of the API server; the numbers are upstream's defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times are in seconds."""

    requests_in_flight: int = 600
    """Seats that the priority levels share; upstream adds 400 for reads and 200 for writes."""
    queue_seconds: float = 15.0
    """How long a request waits for a seat: a quarter of its deadline."""
    watches: int = 10_000
    """Watches that are open; one user, unless exempt from flow control, may have half of them."""
    seconds: float = 60.0
    """The deadline of a request that is not a watch."""
    revision_wait: float = 3.0
    """How long a read waits for a revision that this server has not seen yet."""
    bookmark_every: float = 60.0
    bookmark_before_end: float = 2.0
    """The last bookmark of a watch comes this long before its end."""
    watch_lifetime: tuple[float, float] = (1800.0, 3600.0)
    """A watch without timeoutSeconds ends after a random time in this range, so that clients spread."""
    scan_keys: int = 1000
    """Keys that a page with a selector reads per call to the store."""
    allocation_sweep: float = 60.0
    """Between two sweeps that release orphaned records of service addresses and ports."""
    allocation_age: float = 120.0
    """A service that was being created is stored by now or never will be: twice a request's deadline."""
    default_account_wait: float = 1.0
    """How long a pod in a new namespace waits for the default service account, which a controller creates."""
