"""CRI's LinuxContainerResources as cgroup limits. Pure."""

from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

PIDS = "pids.max"
"""The name in `unified`; CRI has no field of its own for it. It is applied with cgroups of version 1, too."""


def limits_of(resources: pb.LinuxContainerResources) -> Limits:
    """Returns the limits; zero means unset in CRI. Raises InvalidArgument."""
    if raw := resources.unified.keys() - {PIDS}:
        raise InvalidArgument(
            f"linux.resources.unified: the raw cgroup setting {min(raw)} is not supported by podwire, only {PIDS}"
        )
    for name in ("cpu_shares", "cpu_period"):
        if (value := getattr(resources, name)) < 0:
            raise InvalidArgument(f"linux.resources.{name}: {value} is negative")
    return Limits(
        cpu_shares=resources.cpu_shares or None,
        cpu_quota=resources.cpu_quota or None,
        cpu_period=resources.cpu_period or None,
        memory=resources.memory_limit_in_bytes or None,
        pids=check_pids(resources.unified.get(PIDS)),
        cpus=resources.cpuset_cpus or None,
        mems=resources.cpuset_mems or None,
        hugepages=tuple((pages.page_size, pages.limit) for pages in resources.hugepage_limits),
    )


def check_pids(text: str | None) -> int | None:
    """Returns the limit of processes; None without one, -1 for none. Raises InvalidArgument."""
    if text is None:
        return None
    if text == "max":
        return -1
    if not (text.isascii() and text.isdecimal() and len(text) <= 7 and 0 < int(text) <= 2**22):  # PID_MAX_LIMIT
        raise InvalidArgument(f"linux.resources.unified[{PIDS}]: {text[:40]!r} is not a number from 1 to 4194304")
    return int(text)


def merge_limits(limits: Limits, changes: Limits) -> Limits:
    """Returns the limits with the changes that are set."""
    values = {name: value for name, value in changes._asdict().items() if value is not None and value != ()}
    return limits._replace(**values)
