"""Errors of the volume manager.

VolumesNotReady  for FailedMount events: one message for each volume that failed
VolumeError      the cause for one volume, without its name
MountFailed      the same, with the operation that failed and the name of the persistent volume
NotProcessed     the claim or the volume behind it cannot be used yet; all of a pod are one event
"""

from collections.abc import Sequence


class VolumesNotReady(Exception):
    """`failures` has one message for each volume that failed."""

    def __init__(self, *failures: str) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures


class VolumeError(Exception):
    pass


class MountFailed(VolumeError):
    """The message is that of the event."""

    def __init__(self, operation: str, volume: str, reason: object) -> None:
        super().__init__(f'{operation} for volume "{volume}" : {reason}')


class NotProcessed(VolumeError):
    pass


def set_up_failed(volume: str, reason: object) -> str:
    return f'MountVolume.SetUp failed for volume "{volume}" : {reason}'


def not_processed(unmounted: Sequence[str], failed: Sequence[str], reasons: Sequence[str]) -> str:
    """One message for all volumes of a pod whose claims cannot be used yet."""
    names = f"unmounted volumes=[{' '.join(unmounted)}], unattached volumes=[]"
    failures = f"failed to process volumes=[{' '.join(failed)}]: {'; '.join(sorted(set(reasons)))}"
    return f"Unable to attach or mount volumes: {names}, {failures}"


def together(reasons: Sequence[str]) -> str:
    """Several causes as one, without duplicates."""
    different = list(dict.fromkeys(reasons))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]"
