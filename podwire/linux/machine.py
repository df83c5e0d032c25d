"""Facts about this machine: hardware, kernel, addresses, free resources."""

import os
from typing import NamedTuple

from podwire.linux.net.listeners import Listener, listeners
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.pressure import MemoryPressure
from podwire.linux.values import IP, Address, Path, Route

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
"""Names of architectures in the kernel and in Go, which the API uses; all others are the same in both."""

_UNITS = ("", "Ki", "Mi", "Gi", "Ti")


class Facts(NamedTuple):
    """Facts that do not change by themselves while the machine runs. Sizes in bytes."""

    cpus: int
    memory: int
    swap: int
    hugepages: tuple[tuple[str, int], ...]
    """Page size as the API writes it ("2Mi"), and the reserved bytes."""
    kernel: str
    os_image: str
    architecture: str
    """Go's name: amd64, arm64."""
    machine_id: str
    system_uuid: str
    boot_id: str


class FreeResources(NamedTuple):
    """Free memory, disk space and process ids at this moment."""

    memory: int
    disk: int
    disk_size: int
    inodes: int
    inodes_size: int
    """0 on a file system without a fixed number of inodes."""
    pids: int
    pids_size: int


class KernelMachine:
    """Reads /proc, /sys and /etc below `root`, and the network of the calling thread."""

    def __init__(self, root: Path = "/") -> None:
        self._root = os.fspath(root)

    def memory_pressure(self) -> MemoryPressure:
        """Events of tasks that wait for memory. Raises Unsupported."""
        return MemoryPressure(os.path.join(self._root, "proc/pressure/memory"))

    def swaps(self) -> list[str]:
        """Files and devices to which the kernel swaps."""
        return [line.split()[0] for line in self._read("proc/swaps").splitlines()[1:] if line.strip()]

    def facts(self) -> Facts:
        memory, machine_id = parse_meminfo(self._read("proc/meminfo")), self._read("etc/machine-id")
        machine_id = machine_id or self._read("var/lib/dbus/machine-id")
        return Facts(
            cpus=max(1, count_cpus(self._read("sys/devices/system/cpu/online")) or os.cpu_count() or 1),
            memory=memory.get("MemTotal", 0),
            swap=memory.get("SwapTotal", 0),
            hugepages=self._hugepages(),
            kernel=self._read("proc/sys/kernel/osrelease"),
            os_image=parse_os_release(self._read("etc/os-release") or self._read("usr/lib/os-release")),
            architecture=_ARCHITECTURES.get(os.uname().machine, os.uname().machine),
            machine_id=machine_id,
            system_uuid=self._read("sys/class/dmi/id/product_uuid") or machine_id,
            boot_id=self._read("proc/sys/kernel/random/boot_id"),
        )

    def left(self, path: Path) -> FreeResources:
        """Returns the free resources; the disk is that of the path's nearest existing parent."""
        existing = os.path.abspath(os.fspath(path))
        while not os.path.exists(existing):
            existing = os.path.dirname(existing)
        disk = os.statvfs(existing)
        limits = [int(self._read(f"proc/sys/kernel/{name}") or 0) for name in ("pid_max", "threads-max")]
        pids = min((limit for limit in limits if limit), default=0)
        return FreeResources(
            memory=parse_meminfo(self._read("proc/meminfo")).get("MemAvailable", 0),
            disk=disk.f_bavail * disk.f_frsize,
            disk_size=disk.f_blocks * disk.f_frsize,
            inodes=disk.f_favail,
            inodes_size=disk.f_files,
            pids=max(0, pids - count_threads(self._read("proc/loadavg"))),
            pids_size=pids,
        )

    def addresses(self) -> tuple[IP, ...]:
        """Returns the addresses of this machine: those of its default routes first, then all other global ones."""
        with KernelNetwork() as network:
            routes = [route for family in (4, 6) for route in network.routes.list(family)]
            return sort_addresses(routes, network.addresses.list())

    def listeners(self) -> frozenset[Listener]:
        """Returns the listeners in the network namespace of the calling thread."""
        return listeners()

    def apparmor_profiles(self) -> frozenset[str] | None:
        """Returns the names of the loaded AppArmor profiles; None for a kernel that enforces none."""
        if not self.apparmor():
            return None
        lines = self._read("sys/kernel/security/apparmor/profiles").splitlines()
        return frozenset(line.rpartition(" (")[0] for line in lines)

    def apparmor(self) -> bool:
        """Returns whether this kernel enforces AppArmor profiles."""
        mounted = os.path.isdir(os.path.join(self._root, "sys/kernel/security/apparmor"))
        return mounted and self._read("sys/module/apparmor/parameters/enabled").startswith("Y")

    def _read(self, path: str) -> str:
        """Returns a file's stripped text; empty if it cannot be read."""
        try:
            with open(os.path.join(self._root, path), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return ""

    def _hugepages(self) -> tuple[tuple[str, int], ...]:
        directory = os.path.join(self._root, "sys/kernel/mm/hugepages")
        try:
            names = os.listdir(directory)
        except OSError:
            return ()
        sizes = sorted(int(name.removeprefix("hugepages-").removesuffix("kB")) for name in names)
        pages = {size: self._read(f"sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages") for size in sizes}
        return tuple((binary_size(size * 1024), size * 1024 * int(pages[size] or 0)) for size in sizes)


def parse_meminfo(text: str) -> dict[str, int]:
    """The sizes in /proc/meminfo, in bytes."""
    rows = (line.split() for line in text.splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def count_cpus(text: str) -> int:
    """Counts the numbers of a list such as `0-3,8`."""
    count = 0
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def parse_os_release(text: str) -> str:
    """PRETTY_NAME of an os-release file."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return ""


def count_threads(loadavg: str) -> int:
    """Returns the number of threads: the second number of `1/93` in /proc/loadavg."""
    words = loadavg.split()
    return int(words[3].partition("/")[2]) if len(words) > 3 else 0


def binary_size(size: int) -> str:
    """A size with the largest suffix that divides it: 2Mi, 1Gi."""
    power = 0
    while size and size % 1024 == 0 and power < len(_UNITS) - 1:
        size //= 1024
        power += 1
    return f"{size}{_UNITS[power]}"


def sort_addresses(routes: list[Route], addresses: list[Address]) -> tuple[IP, ...]:
    """Returns the global addresses; the source address of each family's best default route first, IPv4 before IPv6."""
    usable = [address for address in addresses if _is_global(address)]
    best = sorted((route for route in routes if route.destination.prefixlen == 0), key=lambda route: route.metric)
    first: dict[int, IP] = {}
    for route in best:
        candidates = [address.interface.ip for address in usable if address.ifindex == route.ifindex]
        same = [ip for ip in candidates if ip.version == route.destination.version]
        source = route.source if route.source in same else next(iter(same), None)
        if source is not None:
            first.setdefault(source.version, source)
    chosen = [first[family] for family in sorted(first)]
    return tuple(dict.fromkeys([*chosen, *(address.interface.ip for address in usable)]))


def _is_global(address: Address) -> bool:
    ip = address.interface.ip
    return not (ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified or address.tentative)
