"""How long drivers may take, and how long they are waited for. Seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSettings:
    call: float = 45.0
    """For one call."""
    slow: float = 5.0
    """Until a pod says which drivers it waits for."""
    slices: float = 30.0
    """The devices of a driver that is away for longer are not offered any more."""
    health_pause: float = 5.0
    """Until a driver that stopped telling how its devices are is asked again."""
    reconcile: float = 60.0
    """Between two looks for claims of pods that are gone, should nobody have told that they are."""


DEFAULT = ClaimSettings()
