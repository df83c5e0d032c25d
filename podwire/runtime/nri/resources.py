"""Cgroup limits as NRI's LinuxResources, and back. Pure."""

from collections.abc import Collection, Iterator
from typing import Any

from google.protobuf.message import Message

from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as cri
from podwire.protocols.grpc_status import InvalidArgument
from podwire.protocols.nri import nri_pb2 as pb

_CPU = {"shares": "cpu_shares", "quota": "cpu_quota", "period": "cpu_period"}

SETTABLE = frozenset({
    "cpu.shares", "cpu.quota", "cpu.period", "cpu.cpus", "cpu.mems", "memory.limit", "hugepage_limits", "pids",
})  # fmt: skip
"""Fields that this runtime can set. Any other is an error, never ignored."""


def from_limits(limits: Limits) -> pb.LinuxResources:
    """Returns limits as plugins see them."""
    message = pb.LinuxResources()
    for name, ours in _CPU.items():
        if (value := getattr(limits, ours)) is not None:
            getattr(message.cpu, name).value = value
    message.cpu.cpus, message.cpu.mems = limits.cpus or "", limits.mems or ""
    if limits.memory is not None:
        message.memory.limit.value = limits.memory
    if limits.pids is not None:
        message.pids.limit = limits.pids
    for size, limit in limits.hugepages:
        message.hugepage_limits.add(page_size=size, limit=limit)
    return message


def from_cri(resources: cri.LinuxContainerResources) -> pb.LinuxResources:
    """Returns the pod-level resources that the kubelet sent; plugins only read them."""
    message = pb.LinuxResources()
    for theirs, value in (
        (message.cpu.shares, resources.cpu_shares),
        (message.cpu.quota, resources.cpu_quota),
        (message.cpu.period, resources.cpu_period),
        (message.memory.limit, resources.memory_limit_in_bytes),
        (message.memory.swap, resources.memory_swap_limit_in_bytes),
    ):
        if value:
            theirs.value = value
    message.cpu.cpus, message.cpu.mems = resources.cpuset_cpus, resources.cpuset_mems
    for pages in resources.hugepage_limits:
        message.hugepage_limits.add(page_size=pages.page_size, limit=pages.limit)
    message.unified.update(resources.unified)
    return message


def overlay_limits(
    limits: Limits, requested: pb.LinuxResources, where: str, devices: Collection[pb.LinuxDeviceCgroup] | None
) -> Limits:
    """Returns the limits with the requested resources. Raises InvalidArgument for what is unsupported.

    `devices` are the rules that are in force: a plugin may send them back with its update, and add none. None for an
    adjustment, whose rules go into the specification.
    """
    names = set(_set_fields(requested))
    if devices is None or all(rule in devices for rule in requested.devices):
        names.discard("devices")
    if unknown := sorted(names - SETTABLE):
        raise InvalidArgument(f"{where}.{unknown[0]}: not supported by podwire's runtime")
    changes: dict[str, Any] = {
        ours: getattr(requested.cpu, name).value for name, ours in _CPU.items() if f"cpu.{name}" in names
    }
    changes |= {name: getattr(requested.cpu, name) for name in ("cpus", "mems") if f"cpu.{name}" in names}
    if requested.memory.limit.value:  # zero means unset
        changes["memory"] = requested.memory.limit.value
    if "pids" in names:
        changes["pids"] = requested.pids.limit or None
    if requested.hugepage_limits:
        pages = dict(limits.hugepages) | {page.page_size: page.limit for page in requested.hugepage_limits}
        changes["hugepages"] = tuple(pages.items())
    return limits._replace(**changes)


def _set_fields(resources: pb.LinuxResources) -> Iterator[str]:
    """Yields the names of the fields that are set: cpu.shares, pids."""
    for field, value in resources.ListFields():
        if field.name in ("cpu", "memory") and isinstance(value, Message):
            yield from (f"{field.name}.{inner.name}" for inner, _ in value.ListFields())
        else:
            yield field.name
