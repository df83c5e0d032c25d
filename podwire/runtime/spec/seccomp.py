"""The seccomp profile of a container.

`RuntimeDefault` is an allow-list (`seccomp_calls.py`): what it does not name fails. Calls that reach past the container
come with the capability that the kernel asks for, too. Some calls are judged by an argument: sockets to the hypervisor
(AF_VSOCK) and to the kernel's crypto code (AF_ALG), new namespaces, and unusual personalities are refused.

A call that is not in the table at all answers ENOSYS, not EPERM: it is newer than the table, and a C library falls back
to an older call.
"""

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, cast

import msgspec

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.spec.seccomp_calls import ALLOWED, OF_ARCHITECTURE, REFUSED, WITH_CAPABILITY

EPERM, ENOSYS = 1, 38
ALLOW, ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"

ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
    "s390x": ["SCMP_ARCH_S390X", "SCMP_ARCH_S390"],
    "riscv64": ["SCMP_ARCH_RISCV64"],
}

AF_ALG, AF_VSOCK = 38, 40
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, 32-bit Linux, each with the release 2.6 (UNAME26), and the question for the current one."""
NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""The flags of clone that make namespaces: mount, cgroup, uts, ipc, user, pid, net."""

LAST_VALUE = 2**64 - 1
"""The largest value of an argument."""
LOCALHOST_FIELD = "linux.security_context.seccomp.localhost_ref"

Action = Literal[
    "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_LOG", "SCMP_ACT_NOTIFY", "SCMP_ACT_TRACE", "SCMP_ACT_TRAP",
]  # fmt: skip
Comparison = Literal[
    "SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ", "SCMP_CMP_NE",
]  # fmt: skip


def profile(
    security: pb.LinuxContainerSecurityContext, kept: Collection[str], machine: str, localhost: bytes = b""
) -> dict[str, Any] | None:
    """Returns the seccomp section; None for no profile. `localhost` is the content of the Localhost profile."""
    if security.privileged or not security.HasField("seccomp"):
        if not security.privileged and security.seccomp_profile_path not in ("", "unconfined"):
            raise InvalidArgument("linux.security_context.seccomp_profile_path: use seccomp instead")
        return None
    match security.seccomp.profile_type:
        case pb.SecurityProfile.Unconfined:
            return None
        case pb.SecurityProfile.Localhost:
            return parse_profile(localhost, LOCALHOST_FIELD)
    return default_profile(kept, machine)


def default_profile(kept: Collection[str], machine: str) -> dict[str, Any]:
    """Returns the profile RuntimeDefault for a container with these capabilities."""
    allowed = {*ALLOWED, *OF_ARCHITECTURE.get(machine, ())}
    gated = {"clone", "clone3"}
    for capability, calls in WITH_CAPABILITY.items():
        gated.update(calls)
        if capability in kept:
            allowed.update(calls)
    refused = (gated - allowed - {"clone", "clone3"}) | set(REFUSED)
    rules = [
        {"names": sorted(allowed), "action": ALLOW},
        {"names": sorted(refused), "action": ERRNO, "errnoRet": EPERM},
        *_socket_rules(),
        *({"names": ["personality"], "action": ALLOW, "args": [_argument("EQ", value)]} for value in PERSONALITIES),
    ]
    if "clone" not in allowed:
        rules += _clone_rules(1 if machine == "s390x" else 0)
    return {
        "defaultAction": ERRNO,
        "defaultErrnoRet": ENOSYS,
        "architectures": ARCHITECTURES.get(machine, []),
        "syscalls": rules,
    }


def _socket_rules() -> Iterator[dict[str, Any]]:
    """Allows all families but two, as three ranges of one condition each: OCI runtimes take several conditions on one
    argument as alternatives, and libseccomp drops a refusal beside an allowance without conditions."""
    for condition in (_argument("LT", AF_ALG), _argument("EQ", AF_ALG + 1), _argument("GT", AF_VSOCK)):
        yield {"names": ["socket"], "action": ALLOW, "args": [condition]}
    for family in (AF_ALG, AF_VSOCK):
        yield {"names": ["socket"], "action": ERRNO, "errnoRet": EPERM, "args": [_argument("EQ", family)]}


def _clone_rules(flags: int) -> Iterator[dict[str, Any]]:
    """Allows clone without the flags of namespaces. clone3 hides its flags behind a pointer; ENOSYS makes libc fall
    back to clone."""
    condition = _argument("MASKED_EQ", sum(NEW_NAMESPACES), 0, index=flags)
    yield {"names": ["clone"], "action": ALLOW, "args": [condition]}
    for flag in NEW_NAMESPACES:
        condition = _argument("MASKED_EQ", flag, flag, index=flags)
        yield {"names": ["clone"], "action": ERRNO, "errnoRet": EPERM, "args": [condition]}
    yield {"names": ["clone3"], "action": ERRNO, "errnoRet": ENOSYS}


def _argument(operation: str, value: int, second: int = 0, *, index: int = 0) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": second, "op": f"SCMP_CMP_{operation}"}


class _Argument(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    index: Annotated[int, msgspec.Meta(ge=0, le=5)]
    value: Annotated[int, msgspec.Meta(ge=0)]
    op: Comparison
    value_two: Annotated[int, msgspec.Meta(ge=0)] = 0


class _Rule(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    names: Annotated[list[Annotated[str, msgspec.Meta(min_length=1, max_length=100)]], msgspec.Meta(min_length=1)]
    action: Action
    errno_ret: Annotated[int, msgspec.Meta(ge=0, le=4095)] | None = None
    args: list[_Argument] | None = None
    comment: str = ""


class _Profile(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """`linux.seccomp` of the OCI specification. Fields of other formats (docker's includes and archMap) are refused:
    a rule that lost its condition would allow more than its author meant."""

    default_action: Action
    default_errno_ret: Annotated[int, msgspec.Meta(ge=0, le=4095)] | None = None
    architectures: list[Annotated[str, msgspec.Meta(pattern="^SCMP_ARCH_[A-Z0-9_]+$")]] = []
    flags: list[str] = []
    listener_path: str = ""
    listener_metadata: str = ""
    syscalls: list[_Rule] = []


def parse_profile(text: bytes, field: str) -> dict[str, Any]:
    """Returns the seccomp section of a Localhost profile. Raises InvalidArgument with its field."""
    try:
        parsed = msgspec.json.decode(text, type=_Profile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidArgument(f"{field}: is not a seccomp profile of the OCI specification: {error}") from error
    for rule in parsed.syscalls:
        rule.comment = ""
        if any(max(argument.value, argument.value_two) > LAST_VALUE for argument in rule.args or ()):
            raise InvalidArgument(f"{field}: a value of {', '.join(rule.names)[:100]} is larger than {LAST_VALUE}")
    return cast("dict[str, Any]", msgspec.to_builtins(parsed))
