"""Resource usage of the whole machine, from /proc: the same with both versions of cgroups."""

import os
import time
from typing import NamedTuple

from podwire.linux.machine import parse_meminfo
from podwire.linux.net.link_counters import LinkCounters, parse_link_counters
from podwire.linux.values import Path

_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class FileSystem(NamedTuple):
    """Space and inodes of a file system."""

    capacity: int
    available: int
    used: int
    inodes: int
    inodes_free: int


class NodeUsage(NamedTuple):
    """Usage at `time`, in nanoseconds since 1970. Sizes in bytes."""

    time: int
    boot_time: int
    """Seconds since 1970."""
    cpu_nanoseconds: int
    memory_total: int
    memory: int
    working_set: int
    rss: int
    page_faults: int
    major_page_faults: int
    swap_total: int
    swap: int
    threads: int
    threads_max: int
    links: tuple[LinkCounters, ...]


def read_node_usage(root: Path = "/proc") -> NodeUsage:
    """Reads the usage. Raises OSError."""
    stat, memory = _read(root, "stat"), parse_meminfo(_read(root, "meminfo"))
    now = time.time_ns()
    boot = next((int(line.split()[1]) for line in stat.splitlines() if line.startswith("btime ")), 0)
    faults = dict(line.split() for line in _read(root, "vmstat").splitlines() if line.startswith(("pgfault", "pgmajf")))
    used = memory.get("MemTotal", 0) - memory.get("MemFree", 0)
    limits = [int(_read(root, f"sys/kernel/{name}") or 0) for name in ("pid_max", "threads-max")]
    return NodeUsage(
        time=now,
        boot_time=boot,
        cpu_nanoseconds=busy_ticks(stat) * _TICK,
        memory_total=memory.get("MemTotal", 0),
        memory=used,
        working_set=max(0, used - memory.get("Inactive(file)", 0)),
        rss=memory.get("AnonPages", 0),
        page_faults=int(faults.get("pgfault", 0)),
        major_page_faults=int(faults.get("pgmajfault", 0)),
        swap_total=memory.get("SwapTotal", 0),
        swap=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        threads=int(_read(root, "loadavg").split()[3].partition("/")[2]),
        threads_max=min((limit for limit in limits if limit), default=0),
        links=tuple(parse_link_counters(_read(root, "thread-self/net/dev"))),
    )


def busy_ticks(stat: str) -> int:
    """Returns the ticks in /proc/stat in which any processor worked: all but idle and waiting for disks. The
    time of virtual machines is user time, too."""
    line = next((line for line in stat.splitlines() if line.startswith("cpu ")), "cpu")
    user, nice, system, _idle, _wait, irq, softirq, steal, *_virtual = [*map(int, line.split()[1:]), *[0] * 8]
    return user + nice + system + irq + softirq + steal


def read_file_system(path: Path) -> FileSystem:
    """Returns the usage of the file system that holds a path. Raises OSError."""
    disk = os.statvfs(path)
    return FileSystem(
        capacity=disk.f_blocks * disk.f_frsize,
        available=disk.f_bavail * disk.f_frsize,
        used=(disk.f_blocks - disk.f_bfree) * disk.f_frsize,
        inodes=disk.f_files,
        inodes_free=disk.f_ffree,
    )


def _read(root: Path, name: str) -> str:
    with open(os.path.join(root, name), encoding="ascii", errors="replace") as file:
        return file.read()
