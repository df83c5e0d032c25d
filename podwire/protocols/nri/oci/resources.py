"""Resources, in config.json and in NRI."""

from collections.abc import Mapping
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment

MEMORY = {
    "limit": "limit",
    "reservation": "reservation",
    "swap": "swap",
    "kernel": "kernel",
    "kernel_tcp": "kernelTCP",
    "swappiness": "swappiness",
    "disable_oom_killer": "disableOOMKiller",
    "use_hierarchy": "useHierarchy",
}
CPU = {
    "shares": "shares",
    "quota": "quota",
    "period": "period",
    "realtime_runtime": "realtimeRuntime",
    "realtime_period": "realtimePeriod",
    "cpus": "cpus",
    "mems": "mems",
}


def resources_from(spec: Mapping[str, Any]) -> pb.LinuxResources:
    """Returns `linux.resources` of a config.json as a message."""
    found = pb.LinuxResources()
    _fill(found.memory, MEMORY, spec.get("memory") or {})
    _fill(found.cpu, CPU, spec.get("cpu") or {})
    for limit in spec.get("hugepageLimits") or ():
        found.hugepage_limits.add(page_size=limit["pageSize"], limit=limit["limit"])
    for rule in spec.get("devices") or ():
        into = found.devices.add()
        into.allow = rule["allow"]
        into.type = rule.get("type") or ""
        into.access = rule.get("access") or ""
        if (major := rule.get("major")) is not None:
            into.major.value = major
        if (minor := rule.get("minor")) is not None:
            into.minor.value = minor
    if (pids := spec.get("pids")) is not None:
        found.pids.limit = pids.get("limit") or 0
    found.unified.update(spec.get("unified") or {})
    return found


def _fill(message: Any, names: Mapping[str, str], section: Mapping[str, Any]) -> None:
    for name, oci in names.items():
        if (value := section.get(oci)) is None:
            continue
        if isinstance(value, str):
            setattr(message, name, value)
        else:
            getattr(message, name).value = value


def resources_to(asked: pb.LinuxResources, resources: dict[str, Any], *, field: str = "adjust.linux.resources") -> None:
    """Put what is asked into `linux.resources` of a config.json; `field` is where it was asked. Raises BadAdjustment.

    A class of RDT stands beside the resources of a specification, so it is not part of them.
    """
    if asked.cpu.ListFields():
        resources.setdefault("cpu", {}).update(_section(asked.cpu, CPU))
    if memory := _memory(asked.memory):
        resources.setdefault("memory", {}).update(memory)
    if asked.hugepage_limits:
        limits = {
            hugepage_limit["pageSize"]: hugepage_limit for hugepage_limit in resources.get("hugepageLimits") or ()
        }
        limits |= {
            hugepage_limit.page_size: {"pageSize": hugepage_limit.page_size, "limit": hugepage_limit.limit}
            for hugepage_limit in asked.hugepage_limits
        }
        resources["hugepageLimits"] = list(limits.values())
    if asked.unified:
        resources.setdefault("unified", {}).update(asked.unified)
    if asked.HasField("pids"):
        resources["pids"] = {"limit": asked.pids.limit}
    if asked.devices:
        resources.setdefault("devices", []).extend(_rule_to(device) for device in asked.devices)
    if asked.HasField("blockio_class"):
        _block_io(asked.blockio_class.value, resources, field)


def _section(message: Any, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        names[descriptor.name]: value if isinstance(value, str) else value.value
        for descriptor, value in message.ListFields()
    }


def _memory(asked: pb.LinuxMemory) -> dict[str, Any]:
    """All that is asked; containerd applies the limit only. A limit of zero says nothing. Swap follows the limit
    unless a plugin says otherwise: swap below the limit would be refused by the kernel."""
    section = _section(asked, MEMORY)
    if section.get("limit") == 0:
        del section["limit"]
    if "limit" in section:
        section.setdefault("swap", section["limit"])
    return section


def _rule_to(rule: pb.LinuxDeviceCgroup) -> dict[str, Any]:
    spec: dict[str, Any] = {"allow": rule.allow}
    if rule.type:
        spec["type"] = rule.type
    if rule.HasField("major"):
        spec["major"] = rule.major.value
    if rule.HasField("minor"):
        spec["minor"] = rule.minor.value
    if rule.access:
        spec["access"] = rule.access
    return spec


def _block_io(name: str, resources: dict[str, Any], field: str) -> None:
    if name:
        raise BadAdjustment(f"{field}.blockio_class", f'block I/O class "{name}" is not configured')
    resources.pop("blockIO", None)
