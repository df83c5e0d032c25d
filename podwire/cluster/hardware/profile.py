"""A hardware profile: NUMA nodes, PCIe roots, network cards, GPUs; and its validation. Pure."""

import re
from collections.abc import Iterator

import msgspec

MOST_FUNCTIONS = 512
"""Links of one node, physical and virtual functions together."""
MOST_VFS = 128
"""Virtual functions of one card."""
MOST_ON_BUS = 240
"""Virtual functions of one bus: 256 functions, without the cards' devices 00 and 01."""
MOST_BUSES = 30
"""Buses behind the ports of one root."""
RESERVED = ("lo", "eth0", "podwire0")
"""Links that every node has: its uplink, and the bridge of its pods."""

_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")


class BadProfile(ValueError):
    """Names the field and the error."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A PCIe root complex."""

    name: str
    numa: int | None = None


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A network card: one physical function, and its virtual ones."""

    name: str
    pci: str
    root: str = ""
    numa: int | None = None
    vendor: str = "15b3"
    device: str = "101d"
    driver: str = "mlx5_core"
    speed: int = 25_000
    """Mbit/s."""
    mac: str = ""
    mtu: int = 1500
    vfs: int = 0
    vf_device: str = "101e"
    vf_driver: str = ""
    """Empty: the card's own."""
    rdma: str = ""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    pci: str
    root: str = ""
    numa: int | None = None
    vendor: str = "10de"
    device: str = "2330"
    driver: str = "podwire-gpu"
    model: str = "podwire-simulated"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    numa_nodes: int = 1
    roots: tuple[Root, ...] = ()
    nics: tuple[Nic, ...] = ()
    gpus: tuple[Gpu, ...] = ()

    @property
    def devices(self) -> tuple[Nic | Gpu, ...]:
        return (*self.nics, *self.gpus)


def parts(address: str) -> tuple[int, int, int]:
    """Returns domain, bus, and device and function in one number."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise BadProfile("pci", f"{address!r} is not a PCI address such as 0000:3b:00.0")
    domain, bus, device, function = (int(group, 16) for group in found.groups())
    return domain, bus, device << 3 | function


def address(domain: int, bus: int, devfn: int) -> str:
    return f"{domain:04x}:{bus:02x}:{devfn >> 3:02x}.{devfn & 7}"


def root_of(profile: Profile, device: Nic | Gpu) -> Root:
    """Returns the named root; else the root whose buses include its own; else a new one."""
    if device.root:
        known = next((root for root in profile.roots if root.name == device.root), None)
        return known or Root(name=device.root)
    domain, bus, _ = parts(device.pci)
    mine = f"pci{domain:04x}:{bus:02x}"
    below = [root for root in profile.roots if root.name[:8] == mine[:8] and root.name <= mine]
    return max(below, key=lambda root: root.name, default=Root(name=mine))


def numa_of(profile: Profile, device: Nic | Gpu) -> int | None:
    return root_of(profile, device).numa if device.numa is None else device.numa


def checked(profile: Profile) -> Profile:
    """Returns the profile. Raises BadProfile for contradictions."""
    for field, reason in _faults(profile):
        raise BadProfile(field, reason)
    return profile


def _faults(profile: Profile) -> Iterator[tuple[str, str]]:
    if not profile.nics and not profile.gpus:
        yield "nics", "the profile has neither nics nor gpus"
    for at, root in enumerate(profile.roots):
        yield from _numa_faults(f"pcieRoots[{at}].numa", root.numa, profile)
    for field, device in _devices(profile):
        yield from _numa_faults(f"{field}.numa", device.numa, profile)
        yield from _root_faults(field, device, profile)
    yield from _twice(profile)
    if sum(1 + nic.vfs for nic in profile.nics) > MOST_FUNCTIONS:
        yield "nics", f"more than {MOST_FUNCTIONS} links, virtual functions included"
    yield from _crowded(profile)
    for at, nic in enumerate(profile.nics):
        longest = f"{nic.name}v{nic.vfs - 1}" if nic.vfs else nic.name
        if len(longest) > 15:
            yield f"nics[{at}].name", f"{longest} is too long for a link: 15 characters at most"
        if nic.name in RESERVED:
            yield f"nics[{at}].name", f"{nic.name} is the name of a link that every node has"


def _devices(profile: Profile) -> Iterator[tuple[str, Nic | Gpu]]:
    for at, nic in enumerate(profile.nics):
        yield f"nics[{at}]", nic
    for at, gpu in enumerate(profile.gpus):
        yield f"gpus[{at}]", gpu


def _numa_faults(field: str, numa: int | None, profile: Profile) -> Iterator[tuple[str, str]]:
    if numa is not None and numa >= profile.numa_nodes:
        yield field, f"node {numa} does not exist: numaNodes is {profile.numa_nodes}"


def _root_faults(field: str, device: Nic | Gpu, profile: Profile) -> Iterator[tuple[str, str]]:
    root = root_of(profile, device)
    domain, bus, _ = parts(device.pci)
    if (first := int(root.name[8:], 16)) > bus or int(root.name[3:7], 16) != domain:
        yield f"{field}.root", f"{device.pci} cannot be below {root.name}, whose buses begin at {first:02x}"
    if device.numa is not None and root.numa is not None and device.numa != root.numa:
        yield f"{field}.numa", f"{root.name} is on node {root.numa}, so {device.pci} cannot be on {device.numa}"


def _crowded(profile: Profile) -> Iterator[tuple[str, str]]:
    virtual: dict[tuple[int, int], int] = {}
    buses: dict[str, set[int]] = {}
    for field, device in _devices(profile):
        domain, bus, _ = parts(device.pci)
        buses.setdefault(root_of(profile, device).name, set()).add(bus)
        virtual[domain, bus] = virtual.get((domain, bus), 0) + (device.vfs if isinstance(device, Nic) else 0)
        if virtual[domain, bus] > MOST_ON_BUS:
            yield f"{field}.vfs", f"more than {MOST_ON_BUS} virtual functions on one bus"
        if len(buses[root_of(profile, device).name]) > MOST_BUSES:
            yield f"{field}.pci", f"more than {MOST_BUSES} buses below one root"


def _twice(profile: Profile) -> Iterator[tuple[str, str]]:
    owners: dict[tuple[str, str], str] = {}
    for field, key, value in _names(profile):
        first = owners.setdefault((key, value), field)
        if first != field:
            yield f"{field}.{key}", f"{value} is used by {first} already"


def _names(profile: Profile) -> Iterator[tuple[str, str, str]]:
    for at, root in enumerate(profile.roots):
        yield f"pcieRoots[{at}]", "name", root.name
    for field, device in _devices(profile):
        yield field, "pci", device.pci
    for at, nic in enumerate(profile.nics):
        yield f"nics[{at}]", "name", nic.name
        yield from ((f"nics[{at}]", "name", f"{nic.name}v{number}") for number in range(nic.vfs))
        for key, value in (("mac", nic.mac), ("rdma", nic.rdma)):
            if value:
                yield f"nics[{at}]", key, value
