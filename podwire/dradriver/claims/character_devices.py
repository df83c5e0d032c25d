"""Files in /dev that come with what is claimed. Blocks."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from podwire.dradriver.claims.allocations import Order
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


def look(path: str) -> CharacterDevice:
    """Raises FailedPrecondition."""
    if not is_character_device(path):
        raise FailedPrecondition(f"{path}: the pod's claim brings it, and it is not on this node any more")
    seen = Path(path).stat()
    return CharacterDevice(os.major(seen.st_rdev), os.minor(seen.st_rdev), stat.S_IMODE(seen.st_mode))


def character_devices(orders: Iterable[Order]) -> list[str]:
    """Those that a claim asked for, and those that belong to its devices; each once."""
    return sorted({path for each in orders for path in _files_of(each)})


def _files_of(order: Order) -> tuple[str, ...]:
    made = (CHARACTER_DEVICES["tun"],) if order.settings.made.kind == "tap" else ()
    own = (each for each in order.offered.character_devices if is_character_device(each))
    return (*made, *order.settings.character_devices, *own)
