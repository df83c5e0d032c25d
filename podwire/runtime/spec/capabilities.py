"""Which capabilities a container's processes have."""

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
"""What a container has that asks for nothing: no raw sockets (ARP and ICMP spoofing) and no device nodes."""


def capabilities(security: pb.LinuxContainerSecurityContext, *, available: Iterable[str]) -> dict[str, list[str]]:
    """The sets of a process; what this host does not have itself cannot be given and is left out."""
    here = frozenset(available)
    if security.privileged:
        kept = here & frozenset(ALL)
        ambient: frozenset[str] = frozenset()
    else:
        kept = _asked(security.capabilities, DEFAULT) & here
        ambient = _names(security.capabilities.add_ambient_capabilities, "add_ambient_capabilities") & here
        kept |= ambient
    told = sorted(kept)
    sets = {"bounding": told, "effective": told, "permitted": told}
    if ambient:
        sets |= {"inheritable": sorted(ambient), "ambient": sorted(ambient)}
    return sets


def _asked(asked: pb.Capability, start: frozenset[str]) -> frozenset[str]:
    """Drops come first, so that `drop: [ALL], add: [X]` means X."""
    add, drop = list(asked.add_capabilities), list(asked.drop_capabilities)
    kept = frozenset(ALL) if _is_all(add) else start
    if _is_all(drop):
        kept = frozenset()
    kept -= _names([each for each in drop if not _is_all([each])], "drop_capabilities")
    return kept | _names([each for each in add if not _is_all([each])], "add_capabilities")


def _is_all(names: Iterable[str]) -> bool:
    return any(each.upper() in ("ALL", "CAP_ALL") for each in names)


def _names(asked: Iterable[str], field: str) -> frozenset[str]:
    found = set()
    for each in asked:
        name = each.upper()
        name = name if name.startswith("CAP_") else f"CAP_{name}"
        if name not in ALL:
            raise InvalidArgument(f"linux.security_context.capabilities.{field}: {each!r} is no capability")
        found.add(name)
    return frozenset(found)


def capability_names(mask: int) -> list[str]:
    """The capabilities of a mask such as /proc/PID/status shows."""
    return [name for number, name in enumerate(ALL) if mask >> number & 1]
