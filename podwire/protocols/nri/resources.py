"""Resources that several plugins decide on together, of a container that is made or of one that runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.entries import assign, put
from podwire.protocols.nri.owners import Claims

MEMORY = {
    "limit": pb.MemLimit,
    "reservation": pb.MemReservation,
    "swap": pb.MemSwapLimit,
    "kernel": pb.MemKernelLimit,
    "kernel_tcp": pb.MemTCPLimit,
    "swappiness": pb.MemSwappiness,
    "disable_oom_killer": pb.MemDisableOomKiller,
    "use_hierarchy": pb.MemUseHierarchy,
}
CPU = {
    "shares": pb.CPUShares,
    "quota": pb.CPUQuota,
    "period": pb.CPUPeriod,
    "realtime_runtime": pb.CPURealtimeRuntime,
    "realtime_period": pb.CPURealtimePeriod,
    "cpus": pb.CPUSetCPUs,
    "mems": pb.CPUSetMems,
}
CLASSES_AND_PIDS = {"blockio_class": pb.BlockioClass, "rdt_class": pb.RdtClass, "pids": pb.PidsLimit}


def merge_resources(asked: pb.LinuxResources, claims: Claims, *into: pb.LinuxResources) -> None:
    """Raises Conflict, with half of it done: hand in copies."""
    _merge_fields(asked.memory, MEMORY, claims, [target.memory for target in into])
    _merge_fields(asked.cpu, CPU, claims, [target.cpu for target in into])
    for limit in asked.hugepage_limits:
        claims.claim(pb.HugepageLimits, limit.page_size)
        for target in into:
            put(target.hugepage_limits, "page_size", limit)
    for key, value in asked.unified.items():
        claims.claim(pb.CgroupsUnified, key)
        for target in into:
            target.unified[key] = value
    for name, number in CLASSES_AND_PIDS.items():
        # containerd looks for the limit of pids of an update in the wrong place and loses it
        if asked.HasField(name):
            claims.claim(number)
            for target in into:
                assign(target, name, getattr(asked, name))
    for target in into:
        target.devices.extend(asked.devices)  # rules of the device cgroup add up, in order; nobody owns one


def _merge_fields(asked: Any, fields: Mapping[str, pb.Field], claims: Claims, into: Sequence[Any]) -> None:
    for descriptor, value in asked.ListFields():
        claims.claim(fields[descriptor.name])
        for target in into:
            assign(target, descriptor.name, value)
