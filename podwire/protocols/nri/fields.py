"""The fields of an adjustment: which number their owners go by, and how their entries are distinguished."""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass

from podwire.protocols.nri import nri_pb2 as pb


def clean_path(path: str) -> str:
    """So that /dev/x and /dev//x/ are known to be the same."""
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path


def rlimit_name(name: str) -> str:
    """RLIMIT_NOFILE, also of `nofile`."""
    name = name.upper()
    return name if name.startswith("RLIMIT_") else f"RLIMIT_{name}"


@dataclass(frozen=True, slots=True)
class Named:
    """A list whose entries are distinguished by one attribute."""

    owner: pb.Field
    attribute: str
    clean: Callable[[str], str] = str
    removable: bool = True
    """Whether an entry can be removed, and so be taken over from another plugin."""


LISTS = {
    "mounts": Named(pb.Mounts, "destination", clean_path),
    "env": Named(pb.Env, "key"),
    "rlimits": Named(pb.Rlimits, "type", rlimit_name, removable=False),
    # what a CDI device brings cannot be taken back: it is resolved only after all plugins were asked
    "CDI_devices": Named(pb.CdiDevices, "name", removable=False),
}
LINUX_LISTS = {"devices": Named(pb.Devices, "path", clean_path)}
MAPS = {"annotations": pb.Annotations}
LINUX_MAPS = {"sysctl": pb.Sysctl, "net_devices": pb.LinuxNetDevices}
LINUX_SINGLE = {
    "cgroups_path": pb.CgroupsPath,
    "oom_score_adj": pb.OomScoreAdj,
    "io_priority": pb.IoPriority,
    "seccomp_policy": pb.SeccompPolicy,
    "scheduler": pb.LinuxSched,
    "memory_policy": pb.MemoryPolicy,
}
RDT = {"clos_id": pb.RdtClosID, "schemata": pb.RdtSchemata, "enable_monitoring": pb.RdtEnableMonitoring}
HOOKS = ("prestart", "create_runtime", "create_container", "start_container", "poststart", "poststop")
