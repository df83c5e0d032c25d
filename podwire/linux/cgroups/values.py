"""Values of cgroups: limits and usage."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Limits of a cgroup; None leaves the kernel's default, -1 removes a limit."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    """Microseconds in each period."""
    cpu_period: int | None = None
    memory: int | None = None
    pids: int | None = None
    cpus: str | None = None
    mems: str | None = None
    hugepages: tuple[tuple[str, int], ...] = ()
    """Page size as the kernel names it ("2MB") and bytes."""


class Usage(NamedTuple):
    """Resource usage of a cgroup; None without a controller."""

    cpu_nanoseconds: int | None
    memory: int | None
    working_set: int | None
    """Memory without inactive file pages."""
    rss: int | None
    page_faults: int | None
    major_page_faults: int | None
    pids: int | None
    oom_kills: int | None
