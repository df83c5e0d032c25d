"""What sysfs tells of a link's hardware. The root is handed in, so that a tree of files can stand for any machine."""

import os
from dataclasses import dataclass
from pathlib import Path

_DEEPEST = 4
"""A virtio device is one floor below its PCI device; nothing known is further down than this."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Of a link that has none, all is empty."""

    driver: str = ""
    pci: str = ""
    numa: int | None = None
    parent: str = ""
    """The PCI address of the physical function that it is a virtual function of."""


class Sysfs:
    def __init__(self, root: Path) -> None:
        self._links = root / "class/net"

    def hardware(self, link: str) -> Hardware:
        device = self._links / link / "device"
        if not device.exists():
            return Hardware()
        place = Path(os.path.realpath(device))
        pci = _on_pci(place)
        if pci is None:
            return Hardware(_target(place / "driver"))
        return Hardware(driver=_target(place / "driver"), pci=pci.name, numa=_numa(pci), parent=_target(pci / "physfn"))


def _on_pci(place: Path) -> Path | None:
    """The nearest PCI device above, itself included."""
    for each in (place, *place.parents)[:_DEEPEST]:
        if _target(each / "subsystem") == "pci":
            return each
    return None


def _target(path: Path) -> str:
    """The last part of where a symlink leads; empty when it is not there."""
    try:
        return path.readlink().name
    except OSError:
        return ""


def _numa(pci: Path) -> int | None:
    try:
        node = int((pci / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None  # a machine with one node says -1
