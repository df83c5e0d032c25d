"""The seccomp profile of a container.

`RuntimeDefault` refuses what reaches past the container whatever its capabilities say: loading code into the kernel,
other processes' memory, mounts, namespaces, clocks, keyrings, swap. Calls that a capability opens for good reasons come
back with that capability. Everything else is allowed: a list of dangers stays right when the kernel grows calls that
programs use, and `no_new_privs`, the capability sets and the masked paths stand behind it.
"""

from collections.abc import Collection
from typing import Any

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

EPERM, ENOSYS = 1, 38

ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}

NEVER = (
    "add_key", "keyctl", "request_key", "kexec_load", "kexec_file_load", "create_module", "init_module",
    "finit_module", "delete_module", "get_kernel_syms", "query_module", "nfsservctl", "uselib", "ustat", "sysfs",
    "_sysctl", "vm86", "vm86old", "lookup_dcookie", "userfaultfd", "swapon", "swapoff", "open_by_handle_at",
    "io_uring_setup", "io_uring_enter", "io_uring_register",
)  # fmt: skip

UNLESS = {
    "CAP_SYS_ADMIN": (
        "bpf", "fanotify_init", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount",
        "open_tree", "perf_event_open", "pivot_root", "quotactl", "quotactl_fd", "setdomainname", "sethostname",
        "setns", "umount", "umount2", "unshare",
    ),
    "CAP_SYS_BOOT": ("reboot",),
    "CAP_SYS_PACCT": ("acct",),
    "CAP_SYS_PTRACE": ("kcmp", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace"),
    "CAP_SYS_RAWIO": ("iopl", "ioperm"),
    "CAP_SYS_TIME": ("adjtimex", "clock_adjtime", "clock_settime", "settimeofday", "stime"),
    "CAP_SYSLOG": ("syslog",),
    "CAP_SYS_NICE": ("get_mempolicy", "mbind", "set_mempolicy", "migrate_pages", "move_pages"),
}  # fmt: skip
"""Calls that need a capability."""

CLONE_NEW = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""The flags of clone that make namespaces: mount, cgroup, uts, ipc, user, pid, net."""


def profile(security: pb.LinuxContainerSecurityContext, kept: Collection[str], machine: str) -> dict[str, Any] | None:
    """Returns the seccomp section; None for no profile. Localhost profiles are unsupported."""
    asked = security.seccomp.profile_type
    if security.privileged or (security.HasField("seccomp") and asked == pb.SecurityProfile.Unconfined):
        return None
    if not security.HasField("seccomp"):
        if security.seccomp_profile_path not in ("", "unconfined"):
            raise InvalidArgument("linux.security_context.seccomp_profile_path: use seccomp instead")
        return None
    if asked == pb.SecurityProfile.Localhost:
        raise InvalidArgument("linux.security_context.seccomp: Localhost profiles are not supported by podwire yet")
    return _default(kept, machine)


def _default(kept: Collection[str], machine: str) -> dict[str, Any]:
    refused = list(NEVER)
    for capability, calls in UNLESS.items():
        if capability not in kept:
            refused += calls
    rules: list[dict[str, Any]] = [{"names": sorted(refused), "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM}]
    if "CAP_SYS_ADMIN" not in kept:
        rules += [_clone_with(flag) for flag in CLONE_NEW]
        # clone3 hides its flags behind a pointer; ENOSYS makes libc fall back to clone
        rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS})
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ARCHITECTURES.get(machine, []),
        "syscalls": rules,
    }


def _clone_with(flag: int) -> dict[str, Any]:
    """Refuses clone when a flag is set: seccomp can only ask whether the masked argument equals a value."""
    argument = {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}
    return {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM, "args": [argument]}
