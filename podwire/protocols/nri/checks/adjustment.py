"""Validates a ContainerAdjustment."""

import re
from collections.abc import Sequence

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.checks.linux import check_linux
from podwire.protocols.nri.checks.words import absolute, need, once, without_zero_bytes
from podwire.protocols.nri.fields import HOOKS, LISTS, rlimit_name
from podwire.protocols.nri.owners import REMOVED

RLIMITS = frozenset(
    f"RLIMIT_{field}"
    for field in (
        "AS", "CORE", "CPU", "DATA", "FSIZE", "LOCKS", "MEMLOCK", "MSGQUEUE", "NICE", "NOFILE", "NPROC", "RSS",
        "RTPRIO", "RTTIME", "SIGPENDING", "STACK",
    )
)  # fmt: skip
_CDI_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9_-]*=[A-Za-z0-9][A-Za-z0-9._:-]*")


def check_adjustment(adjust: pb.ContainerAdjustment, field: str = "adjust") -> None:
    """Raises BadAdjustment."""
    without_zero_bytes(adjust, field)
    for key in adjust.annotations:
        need(key.removeprefix(REMOVED), f"{field}.annotations[{key!r}]", "has no name")
    for number, mount in enumerate(adjust.mounts):
        _mount(mount, f"{field}.mounts[{number}]")
    for number, variable in enumerate(adjust.env):
        name = variable.key.removeprefix(REMOVED)
        need(
            name and "=" not in name, f"{field}.env[{number}].key", f"{name!r} is not a name of an environment variable"
        )
    _args(adjust.args, f"{field}.args")
    for kind in HOOKS:
        for number, hook in enumerate(getattr(adjust.hooks, kind)):
            _hook(hook, f"{field}.hooks.{kind}[{number}]")
    for number, limit in enumerate(adjust.rlimits):
        _rlimit(limit, f"{field}.rlimits[{number}]")
    for number, device in enumerate(adjust.CDI_devices):
        fine = _CDI_NAME.fullmatch(device.name)
        need(
            fine, f"{field}.CDI_devices[{number}].name", f"{device.name!r} is not a name such as vendor.com/class=name"
        )
    _once(adjust, field)
    if adjust.HasField("linux"):
        check_linux(adjust.linux, f"{field}.linux")


def _args(args: Sequence[str], field: str) -> None:
    """An empty first one is a mark, not a program."""
    program = args[1:2] if args and not args[0] else args[:1]
    need(not args or any(program), field, "names nothing to run")


def _once(adjust: pb.ContainerAdjustment, field: str) -> None:
    for name, named in LISTS.items():
        keys = [getattr(entry, named.attribute) for entry in getattr(adjust, name)]
        marks = [REMOVED if named.removable and key.startswith(REMOVED) else "" for key in keys]
        cleaned = [mark + named.clean(key.removeprefix(mark)) for mark, key in zip(marks, keys, strict=True)]
        once(cleaned, f"{field}.{name}", named.attribute)


def _mount(mount: pb.Mount, field: str) -> None:
    absolute(mount.destination.removeprefix(REMOVED), f"{field}.destination")
    if mount.destination.startswith(REMOVED):
        return
    bound = mount.type == "bind" or not {"bind", "rbind"}.isdisjoint(mount.options)
    need(not bound or mount.source, f"{field}.source", "a bind mount needs one")
    need(all(mount.options), f"{field}.options", "one of them is empty")


def _hook(hook: pb.Hook, field: str) -> None:
    absolute(hook.path, f"{field}.path")
    need(not hook.HasField("timeout") or hook.timeout.value > 0, f"{field}.timeout", f"{hook.timeout.value} is not > 0")


def _rlimit(limit: pb.POSIXRlimit, field: str) -> None:
    need(rlimit_name(limit.type) in RLIMITS, f"{field}.type", f"{limit.type!r} is not a resource limit")
    need(limit.soft <= limit.hard, f"{field}.soft", f"{limit.soft} is more than the hard limit {limit.hard}")
