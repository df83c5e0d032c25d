"""The config.json of a container after all plugins have had their say."""

from collections.abc import Mapping
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.entries import drop_variable, put_variable
from podwire.protocols.nri.oci.cdi import Resolve, inject
from podwire.protocols.nri.oci.devices import adjust_devices
from podwire.protocols.nri.oci.mounts import adjust_mounts
from podwire.protocols.nri.oci.resources import resources_to
from podwire.protocols.nri.oci.seccomp import seccomp_to
from podwire.protocols.nri.oci.shapes import (
    HOOKS,
    hook_to,
    io_priority_to,
    memory_policy_to,
    rdt_to,
    scheduler_to,
)
from podwire.protocols.nri.owners import REMOVED

Spec = dict[str, Any]


def adjusted_spec(spec: Mapping[str, Any], adjust: pb.ContainerAdjustment, *, cdi: Resolve | None) -> Spec:
    """A new specification with the merged adjustment in it, done in containerd's order. Raises BadAdjustment.

    What a low-level runtime may be too old for (netDevices, memoryPolicy, scheduler, ioPriority) is put in all the
    same: to do it otherwise, or to refuse it, is the caller's.
    """
    new: Spec = _copied(spec)
    _put_all(new, "annotations", adjust.annotations)
    process = new.setdefault("process", {})
    _environment(process, adjust)
    if adjust.args:
        process["args"] = list(adjust.args)
    _hooks(new, adjust.hooks)
    inject(new, [device.name for device in adjust.CDI_devices], cdi)
    _linux(new, process, adjust.linux)
    adjust_mounts(new, adjust.mounts)
    _rlimits(process, adjust)
    return new


def _copied(value: Any) -> Any:
    """copy.deepcopy looks for what JSON does not have, and takes its time."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    return value


def _put_all(section: Spec, name: str, asked: Mapping[str, str]) -> None:
    if not asked:
        return
    found = section.setdefault(name, {})
    for key, value in asked.items():
        if key.startswith(REMOVED):
            found.pop(key.removeprefix(REMOVED), None)
        else:
            found[key] = value


def _environment(process: Spec, adjust: pb.ContainerAdjustment) -> None:
    if not adjust.env:
        return
    found = process.setdefault("env", [])
    for variable in adjust.env:
        if variable.key.startswith(REMOVED):
            drop_variable(found, variable.key.removeprefix(REMOVED))
        else:
            put_variable(found, variable.key, variable.value)


def _hooks(spec: Spec, asked: pb.Hooks) -> None:
    for name, oci in HOOKS.items():
        if added := [hook_to(hook) for hook in getattr(asked, name)]:
            spec.setdefault("hooks", {}).setdefault(oci, []).extend(added)


def _rlimits(process: Spec, adjust: pb.ContainerAdjustment) -> None:
    """One of a kind: runtimes refuse a second limit of the same."""
    if not adjust.rlimits:
        return
    limits = {rlimit["type"]: rlimit for rlimit in process.get("rlimits") or ()}
    limits |= {
        rlimit.type: {"type": rlimit.type, "hard": rlimit.hard, "soft": rlimit.soft} for rlimit in adjust.rlimits
    }
    process["rlimits"] = list(limits.values())


def _linux(spec: Spec, process: Spec, asked: pb.LinuxContainerAdjustment) -> None:
    adjust_devices(spec, asked.devices)
    linux = spec.setdefault("linux", {})
    if asked.cgroups_path:
        linux["cgroupsPath"] = asked.cgroups_path
    # Class and policy NONE take away what was there.
    if asked.HasField("oom_score_adj"):
        process["oomScoreAdj"] = asked.oom_score_adj.value
    if asked.HasField("io_priority"):
        process.pop("ioPriority", None)
        if getattr(asked.io_priority, "class") != pb.IOPRIO_CLASS_NONE:
            process["ioPriority"] = io_priority_to(asked.io_priority)
    if asked.HasField("scheduler"):
        process.pop("scheduler", None)
        if asked.scheduler.policy != pb.SCHED_NONE:
            process["scheduler"] = scheduler_to(asked.scheduler)
    if asked.HasField("seccomp_policy"):
        linux["seccomp"] = seccomp_to(asked.seccomp_policy)
    _namespaces(linux, asked)
    _put_all(linux, "sysctl", asked.sysctl)
    _net_devices(linux, asked)
    if asked.HasField("memory_policy"):
        linux["memoryPolicy"] = memory_policy_to(asked.memory_policy)
    if asked.HasField("resources"):
        resources_to(asked.resources, linux.setdefault("resources", {}))
    _rdt(linux, asked)


def _namespaces(linux: Spec, asked: pb.LinuxContainerAdjustment) -> None:
    if not asked.namespaces:
        return
    found = {namespace["type"]: namespace for namespace in linux.get("namespaces") or ()}
    for namespace in asked.namespaces:
        if namespace.type.startswith(REMOVED):
            found.pop(namespace.type.removeprefix(REMOVED), None)
        else:
            found[namespace.type] = (
                {"type": namespace.type, "path": namespace.path} if namespace.path else {"type": namespace.type}
            )
    linux["namespaces"] = list(found.values())


def _net_devices(linux: Spec, asked: pb.LinuxContainerAdjustment) -> None:
    for host, device in asked.net_devices.items():
        found = linux.setdefault("netDevices", {})
        if host.startswith(REMOVED):
            found.pop(host.removeprefix(REMOVED), None)
        else:
            found[host] = {"name": device.name} if device.name else {}


def _rdt(linux: Spec, asked: pb.LinuxContainerAdjustment) -> None:
    """A class is what the kernel calls a class of service; the empty one takes away."""
    if asked.resources.HasField("rdt_class"):
        linux.pop("intelRdt", None)
        if asked.resources.rdt_class.value:
            linux["intelRdt"] = {"closID": asked.resources.rdt_class.value}
    if asked.rdt.remove:
        linux.pop("intelRdt", None)
    if rdt := rdt_to(asked.rdt):
        linux.setdefault("intelRdt", {}).update(rdt)
