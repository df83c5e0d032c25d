"""The capabilities of a container's processes."""

from collections.abc import Iterable

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

ALL = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
    "CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN",
    "CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
)  # fmt: skip
"""In the order of the kernel's numbers, from 0."""

DEFAULT = frozenset({
    "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
    "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
})  # fmt: skip
"""The default set: without raw sockets (ARP and ICMP spoofing) and device nodes."""


def capabilities(security: pb.LinuxContainerSecurityContext, *, available: Iterable[str]) -> dict[str, list[str]]:
    """Returns the capability sets of a process; capabilities that this host does not have are left out."""
    here = frozenset(available)
    if security.privileged:
        kept = here & frozenset(ALL)
        ambient: frozenset[str] = frozenset()
    else:
        kept = _asked(security.capabilities, DEFAULT) & here
        ambient = _names(security.capabilities.add_ambient_capabilities, "add_ambient_capabilities") & here
        kept |= ambient
    names = sorted(kept)
    sets = {"bounding": names, "effective": names, "permitted": names}
    if ambient:
        sets |= {"inheritable": sorted(ambient), "ambient": sorted(ambient)}
    return sets


def _asked(asked: pb.Capability, start: frozenset[str]) -> frozenset[str]:
    """Applies drops before adds, so that `drop: [ALL], add: [X]` means X."""
    add, drop = list(asked.add_capabilities), list(asked.drop_capabilities)
    kept = frozenset(ALL) if _is_all(add) else start
    if _is_all(drop):
        kept = frozenset()
    kept -= _names([name for name in drop if not _is_all([name])], "drop_capabilities")
    return kept | _names([name for name in add if not _is_all([name])], "add_capabilities")


def _is_all(names: Iterable[str]) -> bool:
    return any(name.upper() in ("ALL", "CAP_ALL") for name in names)


def _names(asked: Iterable[str], field: str) -> frozenset[str]:
    names = set()
    for requested in asked:
        name = requested.upper()
        name = name if name.startswith("CAP_") else f"CAP_{name}"
        if name not in ALL:
            raise InvalidArgument(f"linux.security_context.capabilities.{field}: {requested!r} is not a capability")
        names.add(name)
    return frozenset(names)


def capability_names(mask: int) -> list[str]:
    """Returns the capabilities of a mask as in /proc/PID/status."""
    return [name for number, name in enumerate(ALL) if mask >> number & 1]
