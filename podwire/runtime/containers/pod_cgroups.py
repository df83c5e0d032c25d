"""The cgroup of a pod: the parent of its containers' cgroups, with the limits that they share. Pure.

A kubelet of upstream makes the group and names it (`linux.cgroup_parent`). Podwire's kubelet leaves it to the runtime:
it sends the limit of processes of the whole pod in `linux.resources.unified`, and the runtime makes `PARENT/pod-ID`,
removed when the pod is stopped. The group has the pod's share of the processors, too, or else all pods would have the
same. The sums of memory and processor limits are not set: each container has its own, and where one has none, the sum
is not a limit of the pod.
"""

from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.cri.resources import PIDS, limits_of

PREFIX = "pod-"


def pod_limits(config: pb.PodSandboxConfig) -> Limits | None:
    """Returns the limits of a pod's cgroup that the runtime makes; None when it makes none. Raises InvalidArgument."""
    resources = config.linux.resources
    if config.linux.cgroup_parent or PIDS not in resources.unified:
        return None
    shared = pb.LinuxContainerResources(cpu_shares=resources.cpu_shares, unified={PIDS: resources.unified[PIDS]})
    return limits_of(shared)


def container_parent(config: pb.PodSandboxConfig, sandbox_id: str, parent: str) -> str:
    """Returns the parent of the cgroups of a pod's containers; `parent` is that of all pods."""
    if given := config.linux.cgroup_parent.strip("/"):
        return given
    return f"{parent}/{PREFIX}{sandbox_id}" if pod_limits(config) else parent


def owner_of_group(path: str) -> str:
    """Returns the sandbox or container of a cgroup, by its path below the parent of all pods.

    Containers may have made groups below their own.
    """
    first, *rest = path.split("/")
    if not first.startswith(PREFIX):
        return first
    return rest[0] if rest else first.removeprefix(PREFIX)
