"""Hardware of a link, read from sysfs. The root is a parameter, so that a directory tree can simulate a machine.

Nothing here raises: what cannot be read, or makes no sense, is not there.
"""

import os
import re
from typing import NamedTuple

from podwire.linux.values import Path

_DEEPEST = 4
"""A virtio device is one floor below its PCI device; nothing known is further down than this."""
_LONGEST = 4096
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2})+")


class Hardware(NamedTuple):
    """All fields are empty for a link without hardware."""

    driver: str = ""
    pci: str = ""
    numa: int | None = None
    parent: str = ""
    """The PCI address of the physical function that it is a virtual function of."""
    vendor: str = ""
    device: str = ""
    """As sysfs writes them: 0x15b3."""
    root: str = ""
    """Of its PCIe tree: pci0000:3a."""
    parent_link: str = ""
    """The link of its physical function."""
    total_vfs: int = 0
    """How many virtual functions it could have; 0 for one that can have none."""
    vfs: int = 0
    port: int = 0
    """Of a device with several ports, which; counted from 0."""


class Rdma(NamedTuple):
    name: str = ""
    character_devices: tuple[str, ...] = ()


class Sysfs:
    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._links = os.path.join(self._root, "class/net")

    def hardware(self, link: str) -> Hardware:
        place = self._device(link)
        if not place:
            return Hardware()
        driver, pci = _target(f"{place}/driver"), _on_pci(place)
        if not pci:
            return Hardware(driver)
        return Hardware(
            driver=driver,
            pci=os.path.basename(pci),
            numa=_not_negative(_number(f"{pci}/numa_node")),  # a machine with one node says -1
            parent=_target(f"{pci}/physfn"),
            vendor=_line(f"{pci}/vendor"),
            device=_line(f"{pci}/device"),
            root=next((part for part in pci.split("/") if _ROOT.fullmatch(part)), ""),
            parent_link=next(iter(_names(f"{pci}/physfn/net")), ""),
            total_vfs=_number(f"{pci}/sriov_totalvfs") or 0,
            vfs=_number(f"{pci}/sriov_numvfs") or 0,
            port=_number(f"{self._links}/{link}/dev_port") or 0,
        )

    def knows(self, link: str, ifindex: int, mac: str) -> bool:
        """Whether its link of this name is this one: a sysfs shows the links of the namespace that it was mounted in.

        A tree that stands for a machine need not say.
        """
        there = f"{self._links}/{link}"
        address = _line(f"{there}/address")
        same = not _MAC.fullmatch(address) or address == mac
        return os.path.isdir(there) and same and _number(f"{there}/ifindex") in (None, ifindex)

    def mtu(self, link: str) -> int | None:
        return _number(f"{self._links}/{link}/mtu")

    def speed(self, link: str) -> int | None:
        """Megabits per second; None when it does not know."""
        speed = _number(f"{self._links}/{link}/speed")
        return speed if speed is not None and 0 < speed < 0xFFFFFFFF else None

    def rdma(self, link: str) -> Rdma:
        """Its RDMA device, and what programs open to use it."""
        pci = _on_pci(self._device(link))
        found = _names(f"{pci}/infiniband") if pci else []
        if not found:
            return Rdma()
        name = next((device for device in found if link in self._links_of(f"{pci}/infiniband/{device}")), found[0])
        devices = [
            f"/dev/infiniband/{verbs}" for verbs in _names(f"{pci}/infiniband_verbs") if self._is_of(pci, verbs, name)
        ]
        if os.path.exists(f"{self._root}/class/misc/rdma_cm"):
            devices.append("/dev/infiniband/rdma_cm")
        return Rdma(name, tuple(devices))

    def _device(self, link: str) -> str:
        device = f"{self._links}/{link}/device"
        return os.path.realpath(device) if link and "/" not in link and os.path.exists(device) else ""

    @staticmethod
    def _links_of(rdma: str) -> set[str]:
        """The links that ports of an RDMA device are on."""
        places = [f"{rdma}/ports/{name}/gid_attrs/ndevs" for name in _names(f"{rdma}/ports")]
        return {_line(f"{place}/{name}") for place in places for name in _names(place)}

    @staticmethod
    def _is_of(pci: str, verbs: str, rdma: str) -> bool:
        """Each RDMA device of a PCI device has files of its own."""
        return _line(f"{pci}/infiniband_verbs/{verbs}/ibdev") in ("", rdma)


def _on_pci(place: str) -> str:
    """The nearest PCI device above, itself included."""
    for _ in range(_DEEPEST):
        if len(place) <= 1:
            return ""
        if _target(f"{place}/subsystem") == "pci":
            return place
        place = os.path.dirname(place)
    return ""


def _target(path: str) -> str:
    """The last part of where a symlink leads; empty when it is not there."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _line(path: str) -> str:
    """Returns the first line of a file; empty if it cannot be read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        return os.read(opened, _LONGEST).decode("utf-8", "replace").strip()
    except OSError:  # a speed that nobody knows is an error in reading
        return ""
    finally:
        os.close(opened)


def _number(path: str) -> int | None:
    text = _line(path)
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) else None


def _not_negative(number: int | None) -> int | None:
    return number if number is not None and number >= 0 else None
