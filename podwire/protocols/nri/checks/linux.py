"""Validates the Linux part of an adjustment."""

import re
from collections.abc import Sequence

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.checks.resources import check_resources
from podwire.protocols.nri.checks.words import absolute, between, known, need, number_list, once, without_dots
from podwire.protocols.nri.fields import clean_path
from podwire.protocols.nri.owners import REMOVED

DEVICE_TYPES = ("b", "c", "u", "p")
NAMESPACES = ("pid", "network", "mount", "ipc", "uts", "user", "cgroup", "time")
ACTIONS = frozenset(
    f"SCMP_ACT_{action}"
    for action in ("KILL", "KILL_PROCESS", "KILL_THREAD", "TRAP", "ERRNO", "TRACE", "ALLOW", "LOG", "NOTIFY")
)
OPERATORS = frozenset(f"SCMP_CMP_{operator}" for operator in ("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"))
LAST_ARGUMENT = 5
"""A system call has six."""

MAX_LINK_NAME = 15
_SYSCTL = re.compile(r"[A-Za-z0-9_-]+([./][A-Za-z0-9_:@-]+)+")
_CLASS = re.compile(r"[^/\s]+")


def check_linux(linux: pb.LinuxContainerAdjustment, field: str) -> None:
    """Raises BadAdjustment."""
    for number, device in enumerate(linux.devices):
        _device(device, f"{field}.devices[{number}]")
    once([_same_path(node.path) for node in linux.devices], f"{field}.devices", "path")
    if linux.HasField("resources"):
        check_resources(linux.resources, f"{field}.resources")
    without_dots(linux.cgroups_path, f"{field}.cgroups_path")
    between(linux.oom_score_adj.value, -1000, 1000, f"{field}.oom_score_adj")
    known(getattr(linux.io_priority, "class"), pb.IOPrioClass, f"{field}.io_priority.class")
    between(linux.io_priority.priority, 0, 7, f"{field}.io_priority.priority")
    if linux.HasField("seccomp_policy"):
        _seccomp(linux.seccomp_policy, f"{field}.seccomp_policy")
    _namespaces(linux.namespaces, f"{field}.namespaces")
    for key in linux.sysctl:
        name = key.removeprefix(REMOVED)
        need(_SYSCTL.fullmatch(name), f"{field}.sysctl[{key!r}]", f"{name!r} is not a name such as net.ipv4.ip_forward")
    _net_devices(linux, f"{field}.net_devices")
    _scheduler(linux.scheduler, f"{field}.scheduler")
    _rdt(linux.rdt, f"{field}.rdt")
    _memory_policy(linux.memory_policy, f"{field}.memory_policy")


def _same_path(path: str) -> str:
    marked = path.startswith(REMOVED)
    return (REMOVED if marked else "") + clean_path(path.removeprefix(REMOVED))


def _device(device: pb.LinuxDevice, field: str) -> None:
    absolute(device.path.removeprefix(REMOVED), f"{field}.path")
    if device.path.startswith(REMOVED):
        return
    need(device.type in DEVICE_TYPES, f"{field}.type", f"{device.type!r} must be one of {', '.join(DEVICE_TYPES)}")
    need(device.major >= 0, f"{field}.major", f"{device.major} is negative")
    need(device.minor >= 0, f"{field}.minor", f"{device.minor} is negative")


def _seccomp(policy: pb.LinuxSeccomp, field: str) -> None:
    need(policy.default_action in ACTIONS, f"{field}.default_action", f"{policy.default_action!r} is not an action")
    for number, name in enumerate(policy.architectures):
        need(name.startswith("SCMP_ARCH_"), f"{field}.architectures[{number}]", f"{name!r} is not a SCMP_ARCH_…")
    for number, rule in enumerate(policy.syscalls):
        path = f"{field}.syscalls[{number}]"
        need(rule.names and all(rule.names), f"{path}.names", "no system call is named")
        need(rule.action in ACTIONS, f"{path}.action", f"{rule.action!r} is not an action")
        for place, argument in enumerate(rule.args):
            between(argument.index, 0, LAST_ARGUMENT, f"{path}.args[{place}].index")
            need(argument.op in OPERATORS, f"{path}.args[{place}].op", f"{argument.op!r} is not an operator")


def _namespaces(namespaces: Sequence[pb.LinuxNamespace], field: str) -> None:
    kinds = [namespace.type.removeprefix(REMOVED) for namespace in namespaces]
    for number, (kind, namespace) in enumerate(zip(kinds, namespaces, strict=True)):
        need(kind in NAMESPACES, f"{field}[{number}].type", f"{kind!r} must be one of {', '.join(NAMESPACES)}")
        if namespace.path:
            absolute(namespace.path, f"{field}[{number}].path")
    once(kinds, field, "type")


def _net_devices(linux: pb.LinuxContainerAdjustment, field: str) -> None:
    """Names as the kernel takes them; a device without one keeps its own."""
    inside: dict[str, str] = {}
    for host, device in linux.net_devices.items():
        path = f"{field}[{host!r}]"
        _link_name(host.removeprefix(REMOVED), path)
        if host.startswith(REMOVED):
            continue
        name = device.name or host
        _link_name(name, f"{path}.name")
        need(name not in inside, f"{path}.name", f"{name!r} is the name of {inside.get(name)} already")
        inside[name] = host


def _link_name(name: str, field: str) -> None:
    need(name, field, "is empty")
    need(len(name.encode()) <= MAX_LINK_NAME, field, f"{name!r} is longer than {MAX_LINK_NAME} bytes")
    bad = name in (".", "..") or any(character in "/:" or character.isspace() for character in name)
    need(not bad, field, f"{name!r} is not a name of a network device")


def _scheduler(scheduler: pb.LinuxScheduler, field: str) -> None:
    known(scheduler.policy, pb.LinuxSchedulerPolicy, f"{field}.policy")
    between(scheduler.nice, -20, 19, f"{field}.nice")
    between(scheduler.priority, 0, 99, f"{field}.priority")
    for number, flag in enumerate(scheduler.flags):
        known(flag, pb.LinuxSchedulerFlag, f"{field}.flags[{number}]")


def _rdt(rdt: pb.LinuxRdt, field: str) -> None:
    if rdt.clos_id.value:
        name = rdt.clos_id.value
        fine = _CLASS.fullmatch(name) and name not in (".", "..")
        need(fine, f"{field}.clos_id", f"{name!r} is not a name of a class of service")
    for number, line in enumerate(rdt.schemata.value):
        need("\n" not in line, f"{field}.schemata[{number}]", "is more than one line")


def _memory_policy(policy: pb.LinuxMemoryPolicy, field: str) -> None:
    known(policy.mode, pb.MpolMode, f"{field}.mode")
    number_list(policy.nodes, f"{field}.nodes")
    for number, flag in enumerate(policy.flags):
        known(flag, pb.MpolFlag, f"{field}.flags[{number}]")
