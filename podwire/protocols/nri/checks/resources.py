"""Resources that no kernel can give."""

import re

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.checks.words import between, need, number_list, once, size, without_zero_bytes

_PAGE_SIZE = re.compile(r"[1-9][0-9]*[KMGTP]B")
_UNIFIED = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")


def check_update(update: pb.ContainerUpdate, field: str) -> None:
    """Raises BadAdjustment."""
    need(update.container_id, f"{field}.container_id", "no container is named")
    without_zero_bytes(update, field)
    check_resources(update.linux.resources, f"{field}.linux.resources")


def check_resources(resources: pb.LinuxResources, field: str) -> None:
    """Raises BadAdjustment."""
    if resources.HasField("memory"):
        _memory(resources.memory, f"{field}.memory")
    if resources.HasField("cpu"):
        _cpu(resources.cpu, f"{field}.cpu")
    for number, limit in enumerate(resources.hugepage_limits):
        need(
            _PAGE_SIZE.fullmatch(limit.page_size),
            f"{field}.hugepage_limits[{number}].page_size",
            f"{limit.page_size!r} is not a size such as 2MB",
        )
    once(
        [hugepage_limit.page_size for hugepage_limit in resources.hugepage_limits],
        f"{field}.hugepage_limits",
        "page_size",
    )
    for key in resources.unified:
        need(_UNIFIED.fullmatch(key), f"{field}.unified[{key!r}]", "is not a cgroup file such as memory.high")
    for number, rule in enumerate(resources.devices):
        _rule(rule, f"{field}.devices[{number}]")
    size(resources.pids.limit, f"{field}.pids.limit")


def _memory(memory: pb.LinuxMemory, field: str) -> None:
    for name in ("limit", "reservation", "swap", "kernel", "kernel_tcp"):
        size(getattr(memory, name).value, f"{field}.{name}")
    between(memory.swappiness.value, 0, 100, f"{field}.swappiness")
    limit, swap = memory.limit.value, memory.swap.value
    need(
        not memory.HasField("swap") or swap <= 0 or limit <= swap,
        f"{field}.swap",
        f"{swap} is less than the limit {limit}: it counts memory and swap together",
    )


def _cpu(cpu: pb.LinuxCPU, field: str) -> None:
    size(cpu.quota.value, f"{field}.quota")
    size(cpu.realtime_runtime.value, f"{field}.realtime_runtime")
    number_list(cpu.cpus, f"{field}.cpus")
    number_list(cpu.mems, f"{field}.mems")


def _rule(rule: pb.LinuxDeviceCgroup, field: str) -> None:
    need(rule.type in ("", "a", "b", "c"), f"{field}.type", f"{rule.type!r} must be one of a, b and c")
    size(rule.major.value, f"{field}.major")
    size(rule.minor.value, f"{field}.minor")
    need(set(rule.access) <= set("rwm"), f"{field}.access", f"{rule.access!r} may hold r, w and m only")
