"""Resources by keyword, for adjustments and updates alike."""

from collections.abc import Mapping
from typing import Any, TypedDict

from podwire.protocols.nri import nri_pb2 as pb


class Resources(TypedDict, total=False):
    """Every field of LinuxResources but the rules for devices; what is not given stays as it is."""

    memory_limit: int
    memory_reservation: int
    memory_swap: int
    memory_kernel: int
    memory_kernel_tcp: int
    memory_swappiness: int
    memory_disable_oom_killer: bool
    memory_use_hierarchy: bool
    cpu_shares: int
    cpu_quota: int
    cpu_period: int
    cpu_realtime_runtime: int
    cpu_realtime_period: int
    cpu_cpus: str
    cpu_mems: str
    hugepage_limits: Mapping[str, int]
    """By page size, such as 2MB."""
    unified: Mapping[str, str]
    """Files of cgroup v2."""
    pids_limit: int
    blockio_class: str
    rdt_class: str


def fill(resources: pb.LinuxResources, given: Mapping[str, Any]) -> None:
    """Writes the given resources into the message. Raises TypeError for an unknown resource."""
    if unknown := sorted(set(given) - set(Resources.__annotations__)):
        raise TypeError(f"no such resource: {', '.join(unknown)}")
    for name, value in given.items():
        match name.partition("_"):
            case "cpu", _, ("cpus" | "mems") as field:
                setattr(resources.cpu, field, value)
            case ("memory" | "cpu") as group, _, field:
                set_optional(getattr(getattr(resources, group), field), value)
            case "hugepage", _, _:
                for size, limit in value.items():
                    resources.hugepage_limits.add(page_size=size, limit=limit)
            case "unified", _, _:
                resources.unified.update(value)
            case "pids", _, _:
                resources.pids.SetInParent()
                resources.pids.limit = value
            case _:  # the classes
                set_optional(getattr(resources, name), value)


def set_optional(optional: Any, value: object) -> None:
    """For the messages that tell zero from unset."""
    optional.SetInParent()
    optional.value = value
