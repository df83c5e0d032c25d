"""The cgroup hierarchies of a machine, and the files of limits and counters in each. No I/O."""

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.cgroups.values import Limits, Usage
from podwire.linux.fs.values import Mount

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "freezer", "devices", "blkio", "io", "hugetlb")
"""Controllers that podwire uses; groups are created in no other hierarchy."""


class Tree(NamedTuple):
    """One hierarchy: version 1 has several, version 2 one; a hybrid machine has both."""

    version: int
    mount: str
    controllers: frozenset[str]


class Setting(NamedTuple):
    """One line for one file of one controller."""

    controller: str
    file: str
    value: str


def trees(mounts: Iterable[Mount], unified: Callable[[str], str]) -> list[Tree]:
    """The trees in which groups are made; `unified` tells a version 2 tree's own list of controllers."""
    found: dict[tuple[int, frozenset[str]], Tree] = {}
    for mount in mounts:
        if mount.kind == "cgroup":
            tree = Tree(1, mount.target, frozenset(mount.super_options) & frozenset(CONTROLLERS))
        elif mount.kind == "cgroup2":
            tree = Tree(2, mount.target, frozenset(unified(mount.target).split()) & frozenset(CONTROLLERS))
        else:
            continue
        if tree.controllers or tree.version == 2:
            found.setdefault((tree.version, tree.controllers if tree.version == 1 else frozenset()), tree)
    return sorted(found.values(), key=lambda each: (each.version, each.mount))


def tree_by_controller(found: Sequence[Tree]) -> dict[str, Tree]:
    """Returns the hierarchy of each controller."""
    return {controller: tree for tree in reversed(found) for controller in tree.controllers}


def settings(limits: Limits, home: Mapping[str, Tree]) -> list[Setting]:
    """Returns the files to write, in this order. Raises Unsupported for a limit without a controller."""
    version = {controller: tree.version for controller, tree in home.items()}
    made: list[Setting] = []
    for controller, wanted in (
        ("cpu", (limits.cpu_shares, limits.cpu_period, limits.cpu_quota)),
        ("memory", (limits.memory,)),
        ("pids", (limits.pids,)),
        ("cpuset", (limits.cpus, limits.mems)),
        ("hugetlb", (limits.hugepages or None,)),
    ):
        if all(value is None for value in wanted):
            continue
        if controller not in version:
            message = f"no cgroup has the {controller} controller"
            raise errors.Unsupported(errno.EOPNOTSUPP, f"limit {controller}", message)
        table = _FIRST if version[controller] == 1 else _SECOND
        made += [Setting(controller, file, value) for file, value in table[controller](limits)]
    return made


_Lines = Iterable[tuple[str, str]]


def _given(*pairs: tuple[str, object]) -> _Lines:
    return [(file, str(value)) for file, value in pairs if value is not None]


def _max(value: int | None) -> str | None:
    return None if value is None else "max" if value < 0 else str(value)


def _cpu_first(limits: Limits) -> _Lines:
    # The period first: the kernel validates a quota against the current period.
    shares, period, quota = limits.cpu_shares, limits.cpu_period, limits.cpu_quota
    return _given(("cpu.shares", shares), ("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota))


def _cpu_second(limits: Limits) -> _Lines:
    share = None if limits.cpu_shares is None else weight(limits.cpu_shares)
    most = None
    if limits.cpu_quota is not None or limits.cpu_period is not None:
        most = f"{_max(limits.cpu_quota) or 'max'} {limits.cpu_period or 100_000}"
    return _given(("cpu.weight", share), ("cpu.max", most))


def weight(shares: int) -> int:
    """Version 1's 2 to 262144 as version 2's 1 to 10000, on a straight line, as the OCI runtimes do."""
    return 1 + (min(max(shares, 2), 262_144) - 2) * 9999 // 262_142


def _pids(limits: Limits) -> _Lines:
    return _given(("pids.max", _max(limits.pids)))


def _cpuset(limits: Limits) -> _Lines:
    return _given(("cpuset.cpus", limits.cpus), ("cpuset.mems", limits.mems))


_FIRST: Mapping[str, Callable[[Limits], _Lines]] = {
    "cpu": _cpu_first,
    "memory": lambda limits: _given(("memory.limit_in_bytes", limits.memory)),
    "pids": _pids,
    "cpuset": _cpuset,
    "hugetlb": lambda limits: [(f"hugetlb.{size}.limit_in_bytes", str(most)) for size, most in limits.hugepages],
}
_SECOND: Mapping[str, Callable[[Limits], _Lines]] = {
    "cpu": _cpu_second,
    "memory": lambda limits: _given(("memory.max", _max(limits.memory))),
    "pids": _pids,
    "cpuset": _cpuset,
    "hugetlb": lambda limits: [(f"hugetlb.{size}.max", _max(most) or "max") for size, most in limits.hugepages],
}


def usage(read: Callable[[str, str], str | None], home: Mapping[str, Tree]) -> Usage:
    """Numbers from the files that `read(controller, file)` gives; None for a file that is not there."""
    version = {controller: tree.version for controller, tree in home.items()}
    memory = _memory(read, version.get("memory", 0))
    return Usage(cpu_nanoseconds=_cpu(read, version), pids=_number(read("pids", "pids.current")), **memory)


def _cpu(read: Callable[[str, str], str | None], version: Mapping[str, int]) -> int | None:
    if version.get("cpuacct") == 1:
        return _number(read("cpuacct", "cpuacct.usage"))
    microseconds = number_table(read("cpu", "cpu.stat")).get("usage_usec")
    return None if microseconds is None else microseconds * 1000


def _memory(read: Callable[[str, str], str | None], version: int) -> dict[str, int | None]:
    first = version == 1
    used = _number(read("memory", "memory.usage_in_bytes" if first else "memory.current"))
    table = number_table(read("memory", "memory.stat"))
    prefix = "total_" if first else ""
    inactive = table.get(f"{prefix}inactive_file", 0)
    killed = number_table(read("memory", "memory.oom_control" if first else "memory.events"))
    return {
        "memory": used,
        "working_set": None if used is None else max(used - inactive, 0),
        "rss": table.get("total_rss" if first else "anon"),
        "page_faults": table.get(f"{prefix}pgfault"),
        "major_page_faults": table.get(f"{prefix}pgmajfault"),
        "oom_kills": killed.get("oom_kill"),
    }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def number_table(text: str | None) -> dict[str, int]:
    """Returns the lines of a file that are a name and a number."""
    rows = [line.split() for line in (text or "").splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
