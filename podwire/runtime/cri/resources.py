"""CRI's LinuxContainerResources as cgroup limits. Pure."""

from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument


def limits_of(resources: pb.LinuxContainerResources) -> Limits:
    """Returns the limits; zero means unset in CRI. Raises InvalidArgument."""
    if resources.unified:
        raise InvalidArgument("linux.resources.unified: raw cgroup settings are not supported by podwire")
    for name in ("cpu_shares", "cpu_period"):
        if (value := getattr(resources, name)) < 0:
            raise InvalidArgument(f"linux.resources.{name}: {value} is negative")
    return Limits(
        cpu_shares=resources.cpu_shares or None,
        cpu_quota=resources.cpu_quota or None,
        cpu_period=resources.cpu_period or None,
        memory=resources.memory_limit_in_bytes or None,
        cpus=resources.cpuset_cpus or None,
        mems=resources.cpuset_mems or None,
        hugepages=tuple((pages.page_size, pages.limit) for pages in resources.hugepage_limits),
    )


def merge_limits(limits: Limits, changes: Limits) -> Limits:
    """Returns the limits with the changes that are set."""
    values = {name: value for name, value in changes._asdict().items() if value is not None and value != ()}
    return limits._replace(**values)
