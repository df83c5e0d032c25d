"""Limits as NRI writes them, and what of NRI's resources this runtime can set. Pure."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from podwire.linux.values import Limits
from podwire.protocols.cri import cri_pb2 as cri
from podwire.protocols.grpc_status import InvalidArgument
from podwire.protocols.nri import nri_pb2 as pb

_CPU = {"shares": "cpu_shares", "quota": "cpu_quota", "period": "cpu_period"}

SETTABLE = frozenset({
    "cpu.shares", "cpu.quota", "cpu.period", "cpu.cpus", "cpu.mems", "memory.limit", "hugepage_limits", "pids",
})  # fmt: skip
"""What this runtime's cgroups know. Anything else is refused by name, never dropped in silence."""


def from_limits(limits: Limits) -> pb.LinuxResources:
    """What plugins are shown."""
    found = pb.LinuxResources()
    for name, ours in _CPU.items():
        if (value := getattr(limits, ours)) is not None:
            getattr(found.cpu, name).value = value
    found.cpu.cpus, found.cpu.mems = limits.cpus or "", limits.mems or ""
    if limits.memory is not None:
        found.memory.limit.value = limits.memory
    if limits.pids is not None:
        found.pids.limit = limits.pids
    for size, limit in limits.hugepages:
        found.hugepage_limits.add(page_size=size, limit=limit)
    return found


def from_cri(resources: cri.LinuxContainerResources) -> pb.LinuxResources:
    """A pod's sums as kubelets tell them; all of them are only shown."""
    found = pb.LinuxResources()
    for theirs, value in (
        (found.cpu.shares, resources.cpu_shares),
        (found.cpu.quota, resources.cpu_quota),
        (found.cpu.period, resources.cpu_period),
        (found.memory.limit, resources.memory_limit_in_bytes),
        (found.memory.swap, resources.memory_swap_limit_in_bytes),
    ):
        if value:
            theirs.value = value
    found.cpu.cpus, found.cpu.mems = resources.cpuset_cpus, resources.cpuset_mems
    for each in resources.hugepage_limits:
        found.hugepage_limits.add(page_size=each.page_size, limit=each.limit)
    found.unified.update(resources.unified)
    return found


def overlay_limits(limits: Limits, wanted: pb.LinuxResources, where: str) -> Limits:
    """The limits with what plugins want instead. Raises InvalidArgument for what cannot be set here."""
    asked = set(_asked(wanted))
    if all(each.allow for each in wanted.devices):
        asked.discard("devices")  # nothing is forbidden that could be allowed
    if unknown := sorted(asked - SETTABLE):
        raise InvalidArgument(f"{where}.{unknown[0]}: not supported by podwire's runtime")
    changes: dict[str, Any] = {
        ours: getattr(wanted.cpu, name).value for name, ours in _CPU.items() if f"cpu.{name}" in asked
    }
    changes |= {name: getattr(wanted.cpu, name) for name in ("cpus", "mems") if f"cpu.{name}" in asked}
    if wanted.memory.limit.value:  # zero changes nothing, as everywhere
        changes["memory"] = wanted.memory.limit.value
    if "pids" in asked:
        changes["pids"] = wanted.pids.limit or None
    if wanted.hugepage_limits:
        pages = dict(limits.hugepages) | {each.page_size: each.limit for each in wanted.hugepage_limits}
        changes["hugepages"] = tuple(pages.items())
    return limits._replace(**changes)


def _asked(resources: pb.LinuxResources) -> Iterator[str]:
    """The fields that are set, one name each: cpu.shares, pids."""
    for field, value in resources.ListFields():
        if field.name in ("cpu", "memory") and isinstance(value, Message):
            yield from (f"{field.name}.{inner.name}" for inner, _ in value.ListFields())
        else:
            yield field.name
