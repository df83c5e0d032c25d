"""Limits of the API server; the numbers are upstream's defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times are in seconds."""

    reading: int = 400
    """Reads in flight."""
    writing: int = 200
    """Writes in flight."""
    seconds: float = 60.0
    """The deadline of a request that is not a watch."""
    revision_wait: float = 3.0
    """How long a read waits for a revision that this server has not seen yet."""
    bookmark_every: float = 60.0
    bookmark_before_end: float = 2.0
    """The last bookmark of a watch comes this long before its end."""
    watch_lifetime: tuple[float, float] = (1800.0, 3600.0)
    """A watch without timeoutSeconds ends after a random time in this range, so that clients spread."""
    default_account_wait: float = 1.0
    """How long a pod in a new namespace waits for the default service account, which a controller creates."""
