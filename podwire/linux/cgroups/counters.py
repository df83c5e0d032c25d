"""All counters of a cgroup by one set of names, from the files of version 1 or 2. No I/O.

`layout.usage` has the few that the kubelet needs every ten seconds; these are for metrics.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from podwire.linux.cgroups.layout import Tree, number_table

Read = Callable[[str, str], str | None]
"""Returns the content of a controller's file; None without it."""

UNLIMITED = 1 << 60
"""Version 1 has a number for no limit, a little less than 2^63."""
PRESSURES = ("cpu", "memory", "io")


class DeviceIo(NamedTuple):
    """Reads and writes of a cgroup at one block device."""

    major: int
    minor: int
    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class Counters(NamedTuple):
    """The counters that this kernel has. Times are nanoseconds."""

    numbers: Mapping[str, int]
    """By names of our own; a counter whose controller or file is missing is left out."""
    devices: tuple[DeviceIo, ...] = ()
    huge_pages: Mapping[str, tuple[int, int]] = {}
    """By page size: bytes in use, and the most that there were."""


def read_counters(read: Read, home: Mapping[str, Tree], page_sizes: Iterable[str] = ()) -> Counters:
    """Returns the counters of the cgroup whose files `read` reads."""
    version = {controller: tree.version for controller, tree in home.items()}
    numbers = _cpu(read, version) | _memory(read, version.get("memory", 0)) | _pressures(read)
    for name, file in (("threads", "pids.current"), ("threads_max", "pids.max")):
        if (value := _limit(read("pids", file))) is not None:
            numbers[name] = value
    huge = _huge_pages(read, version.get("hugetlb", 0), page_sizes)
    return Counters(numbers, _devices(read, version), huge)


def _cpu(read: Read, version: Mapping[str, int]) -> dict[str, int]:
    stat = number_table(read("cpu", "cpu.stat"))
    numbers = {"cpu_periods": stat.get("nr_periods", 0), "cpu_throttled_periods": stat.get("nr_throttled", 0)}
    if version.get("cpu") == 1:
        numbers["cpu_throttled"] = stat.get("throttled_time", 0)
    else:
        numbers["cpu_throttled"] = stat.get("throttled_usec", 0) * 1000
    if version.get("cpuacct") == 1:
        files = {"cpu": "cpuacct.usage", "cpu_user": "cpuacct.usage_user", "cpu_system": "cpuacct.usage_sys"}
        times = {name: _limit(read("cpuacct", file)) for name, file in files.items()}
        return numbers | {name: value for name, value in times.items() if value is not None}
    names = {"cpu": "usage_usec", "cpu_user": "user_usec", "cpu_system": "system_usec"}
    return numbers | {name: stat[key] * 1000 for name, key in names.items() if key in stat}


_MEMORY_FILES = {
    1: {
        "memory": "memory.usage_in_bytes", "memory_max": "memory.max_usage_in_bytes",
        "memory_failures": "memory.failcnt", "memory_kernel": "memory.kmem.usage_in_bytes",
        "memory_limit": "memory.limit_in_bytes", "memory_reservation": "memory.soft_limit_in_bytes",
        "swap_limit": "memory.memsw.limit_in_bytes",
    },
    2: {
        "memory": "memory.current", "memory_max": "memory.peak", "swap": "memory.swap.current",
        "memory_limit": "memory.max", "memory_reservation": "memory.low", "swap_limit": "memory.swap.max",
    },
}  # fmt: skip
_MEMORY_STAT = {
    1: {
        "memory_cache": "total_cache", "memory_rss": "total_rss", "memory_mapped": "total_mapped_file",
        "swap": "total_swap", "page_faults": "total_pgfault", "major_page_faults": "total_pgmajfault",
        "inactive_file": "total_inactive_file",
    },
    2: {
        "memory_cache": "file", "memory_rss": "anon", "memory_mapped": "file_mapped", "memory_kernel": "kernel",
        "page_faults": "pgfault", "major_page_faults": "pgmajfault", "inactive_file": "inactive_file",
    },
}  # fmt: skip


def _memory(read: Read, version: int) -> dict[str, int]:
    if not version:
        return {}
    stat = number_table(read("memory", "memory.stat"))
    files = {name: _limit(read("memory", file)) for name, file in _MEMORY_FILES[version].items()}
    numbers = {name: value for name, value in files.items() if value is not None}
    numbers |= {name: stat[key] for name, key in _MEMORY_STAT[version].items() if key in stat}
    events = number_table(read("memory", "memory.oom_control" if version == 1 else "memory.events"))
    if "oom_kill" in events:
        numbers["oom_kills"] = events["oom_kill"]
    if version == 2 and "max" in events:
        numbers["memory_failures"] = events["max"]
    if "memory" in numbers:
        numbers["working_set"] = max(numbers["memory"] - numbers.pop("inactive_file", 0), 0)
    return numbers


def _pressures(read: Read) -> dict[str, int]:
    """Reads the time that some, or all, tasks waited; `pressure` files are in trees of version 2 only."""
    numbers = {}
    for resource in PRESSURES:
        for line in (read("pressure", f"{resource}.pressure") or "").splitlines():
            kind, _, rest = line.partition(" ")
            total = rest.rpartition("total=")[2]
            if total.isdigit():
                numbers[f"{resource}_{kind}"] = int(total) * 1000
    return numbers


def _devices(read: Read, version: Mapping[str, int]) -> tuple[DeviceIo, ...]:
    devices: dict[tuple[int, int], dict[str, int]] = {}

    def add(device: str, **numbers: int) -> None:
        major, _, minor = device.partition(":")
        if major.isdigit() and minor.isdigit():
            devices.setdefault((int(major), int(minor)), {}).update(numbers)

    if version.get("blkio") == 1:
        for file, names in (
            ("io_service_bytes", {"Read": "read_bytes", "Write": "written_bytes"}),
            ("io_serviced", {"Read": "reads", "Write": "writes"}),
        ):
            for line in (read("blkio", f"blkio.throttle.{file}_recursive") or "").splitlines():
                words = line.split()
                if len(words) == 3 and words[1] in names and words[2].isdigit():
                    add(words[0], **{names[words[1]]: int(words[2])})
    else:
        names = {"rbytes": "read_bytes", "wbytes": "written_bytes", "rios": "reads", "wios": "writes"}
        for line in (read("io", "io.stat") or "").splitlines():
            device, *pairs = line.split()
            given = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            add(device, **{name: int(given[key]) for key, name in names.items() if given.get(key, "").isdigit()})
    return tuple(DeviceIo(major, minor, **numbers) for (major, minor), numbers in sorted(devices.items()))


def _huge_pages(read: Read, version: int, page_sizes: Iterable[str]) -> dict[str, tuple[int, int]]:
    files = ("usage_in_bytes", "max_usage_in_bytes") if version == 1 else ("current", "max_usage")
    used = {}
    for size in page_sizes if version else ():
        now = _limit(read("hugetlb", f"hugetlb.{size}.{files[0]}"))
        if now is not None:
            used[size] = (now, _limit(read("hugetlb", f"hugetlb.{size}.{files[1]}")) or now)
    return used


def _limit(text: str | None) -> int | None:
    """Returns a number; 0 for no limit, None without a file."""
    if text is None:
        return None
    word = text.strip()
    value = int(word) if word.isdigit() else 0
    return 0 if value >= UNLIMITED else value
