"""The PCI functions of a profile: address, position below a root, and kind of device. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from podwire.cluster.hardware.profile import Gpu, Nic, Profile, address, numa_of, parts, root_of

NETWORK, DISPLAY, BRIDGE = 0x020000, 0x030200, 0x060400
"""PCI classes: Ethernet controller, 3D controller, PCI bridge."""
FIRST_VF = 0x10
"""Device and function of the first virtual function on a bus: 02.0, after the cards."""


class Function(NamedTuple):
    """One PCI function."""

    pci: str
    place: str
    """The path below /sys: devices/ROOT/…/ADDRESS."""
    root: str
    kind: int
    vendor: str
    device: str
    driver: str
    numa: int | None = None
    nic: Nic | None = None
    """The card, or the card of a virtual function."""
    name: str = ""
    """The name of its link."""
    mac: str = ""
    rdma: str = ""
    physical: str = ""
    """For a virtual function: the address of its card."""
    gpu: Gpu | None = None


def functions(profile: Profile) -> list[Function]:
    """Returns all functions, cards before their virtual functions."""
    ports = _Ports(profile)
    used = {device.pci for device in profile.devices}
    result: list[Function] = []
    for nic in profile.nics:
        result.append(_card(profile, nic, ports))
        result += _virtual(result[-1], nic, used)
    result += [_gpu(profile, gpu, ports) for gpu in profile.gpus]
    return result


def links(functions_: list[Function]) -> list[Function]:
    """Returns the functions that have a link."""
    return [function for function in functions_ if function.name]


def bridges(profile: Profile) -> list[Function]:
    """Returns the ports of roots that lead to buses of their own."""
    ports = _Ports(profile)
    for device in profile.devices:
        ports.above(device)
    return [
        Function(pci, f"devices/{root}/{pci}", root, BRIDGE, "8086", "347a", "pcieport", numa)
        for (root, _), (pci, numa) in sorted(ports.made.items())
    ]


def mac_of(pci: str) -> str:
    """Returns a locally administered MAC that follows from an address, so that it is the same after every start."""
    domain, bus, devfn = parts(pci)
    return f"02:70:77:{domain & 0xFF:02x}:{bus:02x}:{devfn:02x}"


class _Ports:
    """Assigns ports of roots to buses."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._taken = {device.pci for device in profile.devices}
        self.made: dict[tuple[str, int], tuple[str, int | None]] = {}

    def above(self, device: Nic | Gpu) -> str:
        """Returns the directory that contains a device's; on the root's own bus there is no port in between."""
        root = root_of(self._profile, device)
        domain, bus, _ = parts(device.pci)
        first = int(root.name[8:], 16)
        if bus == first:
            return f"devices/{root.name}"
        if (root.name, bus) not in self.made:
            free = next(pci for slot in range(1, 32) if (pci := address(domain, first, slot << 3)) not in self._taken)
            self._taken.add(free)
            self.made[root.name, bus] = free, root.numa
        return f"devices/{root.name}/{self.made[root.name, bus][0]}"


def _card(profile: Profile, nic: Nic, ports: _Ports) -> Function:
    return Function(
        pci=nic.pci,
        place=f"{ports.above(nic)}/{nic.pci}",
        root=root_of(profile, nic).name,
        kind=NETWORK,
        vendor=nic.vendor,
        device=nic.device,
        driver=nic.driver,
        numa=numa_of(profile, nic),
        nic=nic,
        name=nic.name,
        mac=nic.mac or mac_of(nic.pci),
        rdma=nic.rdma,
    )


def _virtual(card: Function, nic: Nic, used: set[str]) -> Iterator[Function]:
    domain, bus, _ = parts(nic.pci)
    free = (candidate for devfn in range(FIRST_VF, 256) if (candidate := address(domain, bus, devfn)) not in used)
    for number in range(nic.vfs):
        pci = next(free)
        used.add(pci)
        yield card._replace(
            pci=pci,
            place=card.place.rpartition("/")[0] + f"/{pci}",
            device=nic.vf_device,
            driver=nic.vf_driver or nic.driver,
            name=f"{nic.name}v{number}",
            mac=mac_of(pci),
            rdma=f"{nic.rdma}v{number}" if nic.rdma else "",
            physical=nic.pci,
        )


def _gpu(profile: Profile, gpu: Gpu, ports: _Ports) -> Function:
    return Function(
        pci=gpu.pci,
        place=f"{ports.above(gpu)}/{gpu.pci}",
        root=root_of(profile, gpu).name,
        kind=DISPLAY,
        vendor=gpu.vendor,
        device=gpu.device,
        driver=gpu.driver,
        numa=numa_of(profile, gpu),
        gpu=gpu,
    )
