"""Character devices that belong to claimed devices. Blocks."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from podwire.dradriver.claims.allocations import Allocation
from podwire.dradriver.parameters.settings import CHARACTER_DEVICES
from podwire.protocols.grpc_status import FailedPrecondition


class CharacterDevice(NamedTuple):
    major: int
    minor: int
    mode: int


def is_character_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(Path(path).stat().st_mode)
    except OSError:
        return False


def stat_device(path: str) -> CharacterDevice:
    """Raises FailedPrecondition."""
    if not is_character_device(path):
        raise FailedPrecondition(f"{path}: the pod's claim needs this character device, and the node no longer has it")
    status = Path(path).stat()
    return CharacterDevice(os.major(status.st_rdev), os.minor(status.st_rdev), stat.S_IMODE(status.st_mode))


def character_devices(allocations: Iterable[Allocation]) -> list[str]:
    """Returns the paths that claims ask for and those that belong to their devices; each once."""
    paths: set[str] = set()
    for allocation in allocations:
        if allocation.settings.made.kind == "tap":
            paths.add(CHARACTER_DEVICES["tun"])
        paths |= {*allocation.settings.character_devices}
        paths |= {path for path in allocation.device.character_devices if is_character_device(path)}
    return sorted(paths)
