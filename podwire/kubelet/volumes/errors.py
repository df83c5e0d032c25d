"""Why a volume is not there (yet).

NotReady     for the pod's event FailedMount: every volume that fails, in the words that people search for
VolumeError  one volume's reason, without its name
"""

from collections.abc import Sequence


class VolumesNotReady(Exception):
    """Volumes that a pod waits for. `failures` has one text for each."""

    def __init__(self, *failures: str) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures


class VolumeError(Exception):
    pass


def set_up_failed(volume: str, reason: object) -> str:
    return f'MountVolume.SetUp failed for volume "{volume}" : {reason}'


def together(reasons: Sequence[str]) -> str:
    """Several reasons as one, each told once."""
    different = list(dict.fromkeys(reasons))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]"
