"""A seccomp policy, in config.json and in NRI."""

from collections.abc import Mapping
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb


def seccomp_from(spec: Mapping[str, Any]) -> pb.LinuxSeccomp:
    found = pb.LinuxSeccomp(
        default_action=spec.get("defaultAction") or "",
        architectures=spec.get("architectures") or (),
        flags=spec.get("flags") or (),
        listener_path=spec.get("listenerPath") or "",
        listener_metadata=spec.get("listenerMetadata") or "",
    )
    if (errno := spec.get("defaultErrnoRet")) is not None:
        found.default_errno.value = errno
    for call in spec.get("syscalls") or ():
        rule = found.syscalls.add(names=call["names"], action=call["action"])
        if (errno := call.get("errnoRet")) is not None:
            rule.errno_ret.value = errno
        for argument in call.get("args") or ():
            rule.args.add(
                index=argument["index"],
                value=argument["value"],
                value_two=argument.get("valueTwo", 0),
                op=argument["op"],
            )
    return found


def seccomp_to(policy: pb.LinuxSeccomp) -> dict[str, Any]:
    """With the default errno, which containerd forgets."""
    told: dict[str, Any] = {"defaultAction": policy.default_action}
    if policy.HasField("default_errno"):
        told["defaultErrnoRet"] = policy.default_errno.value
    if policy.architectures:
        told["architectures"] = list(policy.architectures)
    if policy.flags:
        told["flags"] = list(policy.flags)
    if policy.listener_path:
        told["listenerPath"] = policy.listener_path
    if policy.listener_metadata:
        told["listenerMetadata"] = policy.listener_metadata
    if policy.syscalls:
        told["syscalls"] = [_syscall(syscall) for syscall in policy.syscalls]
    return told


def _syscall(rule: pb.LinuxSyscall) -> dict[str, Any]:
    told: dict[str, Any] = {"names": list(rule.names), "action": rule.action}
    if rule.HasField("errno_ret"):
        told["errnoRet"] = rule.errno_ret.value
    if rule.args:
        told["args"] = [
            {"index": argument.index, "value": argument.value, "valueTwo": argument.value_two, "op": argument.op}
            for argument in rule.args
        ]
    return told
