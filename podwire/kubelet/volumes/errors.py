"""Errors of the volume manager.

VolumesNotReady  for FailedMount events: one message for each volume that failed
VolumeError      the cause for one volume, without its name
"""

from collections.abc import Sequence


class VolumesNotReady(Exception):
    """`failures` has one message for each volume that failed."""

    def __init__(self, *failures: str) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures


class VolumeError(Exception):
    pass


def set_up_failed(volume: str, reason: object) -> str:
    return f'MountVolume.SetUp failed for volume "{volume}" : {reason}'


def together(reasons: Sequence[str]) -> str:
    """Several causes as one, without duplicates."""
    different = list(dict.fromkeys(reasons))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]"
