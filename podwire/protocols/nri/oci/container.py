"""Builds the NRI Container message from a config.json."""

from collections.abc import Mapping
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.oci.resources import resources_from
from podwire.protocols.nri.oci.seccomp import seccomp_from
from podwire.protocols.nri.oci.shapes import (
    HOOKS,
    device_from,
    hook_from,
    io_priority_from,
    mount_from,
    rdt_from,
    scheduler_from,
)


def container_of(spec: Mapping[str, Any], known: pb.Container | None = None) -> pb.Container:
    """`known` is what no config.json says: id, pod, name, labels, state, times, image, seccomp profile, CDI devices.

    Its annotations are kept beneath those of the specification, its resources when the specification has none.
    """
    container = pb.Container()
    if known is not None:
        container.CopyFrom(known)
    container.annotations.update(spec.get("annotations") or {})
    for mount in spec.get("mounts") or ():
        mount_from(mount, container.mounts.add())
    hooks = spec.get("hooks") or {}
    for name, oci in HOOKS.items():
        for hook in hooks.get(oci) or ():
            hook_from(hook, getattr(container.hooks, name).add())
    _process(spec.get("process") or {}, container)
    _linux(spec.get("linux") or {}, container.linux)
    return container


def _process(spec: Mapping[str, Any], container: pb.Container) -> None:
    container.args.extend(spec.get("args") or ())
    container.env.extend(spec.get("env") or ())
    for rlimit in spec.get("rlimits") or ():
        container.rlimits.add(type=rlimit["type"], hard=rlimit["hard"], soft=rlimit["soft"])
    if (user := spec.get("user")) is not None:
        container.user.uid, container.user.gid = user.get("uid", 0), user.get("gid", 0)
        container.user.additional_gids.extend(user.get("additionalGids") or ())
    if (score := spec.get("oomScoreAdj")) is not None:
        container.linux.oom_score_adj.value = score
    if priority := spec.get("ioPriority"):
        container.linux.io_priority.CopyFrom(io_priority_from(priority))
    if scheduler := spec.get("scheduler"):
        container.linux.scheduler.CopyFrom(scheduler_from(scheduler))


def _linux(spec: Mapping[str, Any], linux: pb.LinuxContainer) -> None:
    for namespace in spec.get("namespaces") or ():
        linux.namespaces.add(type=namespace["type"], path=namespace.get("path") or "")
    for node in spec.get("devices") or ():
        device_from(node, linux.devices.add())
    if resources := spec.get("resources"):
        linux.resources.CopyFrom(resources_from(resources))
    linux.cgroups_path = spec.get("cgroupsPath") or ""
    if seccomp := spec.get("seccomp"):
        linux.seccomp_policy.CopyFrom(seccomp_from(seccomp))
    linux.sysctl.update(spec.get("sysctl") or {})
    for host, device in (spec.get("netDevices") or {}).items():
        linux.net_devices[host].name = device.get("name") or ""
    if rdt := spec.get("intelRdt"):
        rdt_from(rdt, linux.rdt)
