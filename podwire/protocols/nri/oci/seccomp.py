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
    spec: dict[str, Any] = {"defaultAction": policy.default_action}
    if policy.HasField("default_errno"):
        spec["defaultErrnoRet"] = policy.default_errno.value
    if policy.architectures:
        spec["architectures"] = list(policy.architectures)
    if policy.flags:
        spec["flags"] = list(policy.flags)
    if policy.listener_path:
        spec["listenerPath"] = policy.listener_path
    if policy.listener_metadata:
        spec["listenerMetadata"] = policy.listener_metadata
    if policy.syscalls:
        spec["syscalls"] = [_syscall(syscall) for syscall in policy.syscalls]
    return spec


def _syscall(rule: pb.LinuxSyscall) -> dict[str, Any]:
    spec: dict[str, Any] = {"names": list(rule.names), "action": rule.action}
    if rule.HasField("errno_ret"):
        spec["errnoRet"] = rule.errno_ret.value
    if rule.args:
        spec["args"] = [
            {"index": argument.index, "value": argument.value, "valueTwo": argument.value_two, "op": argument.op}
            for argument in rule.args
        ]
    return spec
