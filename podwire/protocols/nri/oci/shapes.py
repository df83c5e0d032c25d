"""Small parts of a container, in config.json and in NRI."""

from collections.abc import Mapping
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb

Part = dict[str, Any]

HOOKS = {
    "prestart": "prestart",
    "create_runtime": "createRuntime",
    "create_container": "createContainer",
    "start_container": "startContainer",
    "poststart": "poststart",
    "poststop": "poststop",
}
PERMISSIONS = 0o7777
"""Permission bits of a mode. Plugins in Go send the file type too, in Go's own bits."""


def mount_to(mount: pb.Mount) -> Part:
    spec: Part = {"destination": mount.destination}
    if mount.type:
        spec["type"] = mount.type
    if mount.source:
        spec["source"] = mount.source
    return spec | {"options": list(mount.options)}


def mount_from(spec: Mapping[str, Any], into: pb.Mount) -> None:
    into.destination = spec["destination"]
    into.type = spec.get("type") or ""
    into.source = spec.get("source") or ""
    into.options.extend(spec.get("options") or ())


def hook_to(hook: pb.Hook) -> Part:
    spec: Part = {"path": hook.path}
    if hook.args:
        spec["args"] = list(hook.args)
    if hook.env:
        spec["env"] = list(hook.env)
    if hook.HasField("timeout"):
        spec["timeout"] = hook.timeout.value
    return spec


def hook_from(spec: Mapping[str, Any], into: pb.Hook) -> None:
    into.path = spec["path"]
    into.args.extend(spec.get("args") or ())
    into.env.extend(spec.get("env") or ())
    if (timeout := spec.get("timeout")) is not None:
        into.timeout.value = timeout


def device_to(device: pb.LinuxDevice) -> Part:
    spec: Part = {"path": device.path, "type": device.type}
    if device.type != "p":  # a pipe has no numbers
        spec |= {"major": device.major, "minor": device.minor}
    if device.HasField("file_mode"):
        spec["fileMode"] = device.file_mode.value & PERMISSIONS
    if device.HasField("uid"):
        spec["uid"] = device.uid.value
    if device.HasField("gid"):
        spec["gid"] = device.gid.value
    return spec


def device_from(spec: Mapping[str, Any], into: pb.LinuxDevice) -> None:
    into.path, into.type = spec["path"], spec["type"]
    into.major, into.minor = spec.get("major") or 0, spec.get("minor") or 0
    if (mode := spec.get("fileMode")) is not None:
        into.file_mode.value = mode
    if (uid := spec.get("uid")) is not None:
        into.uid.value = uid
    if (gid := spec.get("gid")) is not None:
        into.gid.value = gid


def scheduler_to(scheduler: pb.LinuxScheduler) -> Part:
    spec: Part = {"policy": pb.LinuxSchedulerPolicy.Name(scheduler.policy)}
    if scheduler.flags:
        spec["flags"] = [pb.LinuxSchedulerFlag.Name(flag) for flag in scheduler.flags]
    return spec | {
        name: value
        for name in ("nice", "priority", "runtime", "deadline", "period")
        if (value := getattr(scheduler, name))
    }


def scheduler_from(spec: Mapping[str, Any]) -> pb.LinuxScheduler:
    return pb.LinuxScheduler(**{name: value for name, value in spec.items() if value is not None})


def io_priority_to(priority: pb.LinuxIOPriority) -> Part:
    return {"class": pb.IOPrioClass.Name(getattr(priority, "class")), "priority": priority.priority}


def io_priority_from(spec: Mapping[str, Any]) -> pb.LinuxIOPriority:
    # `class` is a word that Python keeps
    return pb.LinuxIOPriority(**{name: spec[name] for name in ("class", "priority") if name in spec})


def memory_policy_to(policy: pb.LinuxMemoryPolicy) -> Part:
    spec: Part = {"mode": pb.MpolMode.Name(policy.mode)}
    if policy.nodes:
        spec["nodes"] = policy.nodes
    if policy.flags:
        spec["flags"] = [pb.MpolFlag.Name(flag) for flag in policy.flags]
    return spec


def rdt_to(asked: pb.LinuxRdt) -> Part:
    spec: Part = {}
    if asked.HasField("clos_id"):
        spec["closID"] = asked.clos_id.value
    if asked.HasField("schemata"):
        spec["schemata"] = list(asked.schemata.value)
    if asked.HasField("enable_monitoring"):
        spec["enableMonitoring"] = asked.enable_monitoring.value
    return spec


def rdt_from(spec: Mapping[str, Any], into: pb.LinuxRdt) -> None:
    if (clos := spec.get("closID")) is not None:
        into.clos_id.value = clos
    if (schemata := spec.get("schemata")) is not None:
        into.schemata.value.extend(schemata)
    if (monitored := spec.get("enableMonitoring")) is not None:
        into.enable_monitoring.value = monitored
