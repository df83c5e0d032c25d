"""Resource limits of containers and pods in the kernel's units. Pure."""

from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.config.resources import amount, oom_score_adj, pod_limits, pod_requests, quantity
from podwire.objects.containers import Container, Quantities
from podwire.objects.pods import Pod
from podwire.objects.quantity import Quantity
from podwire.protocols.cri import cri_pb2 as pb

SHARES_PER_CPU, FEWEST_SHARES, MOST_SHARES = 1024, 2, 262144
PERIOD_MICROSECONDS, SMALLEST_QUOTA = 100_000, 1000
HUGE_PAGES = "hugepages-"


def container_limits(pod: Pod, container: Container, node: NodeFacts) -> pb.LinuxContainerResources:
    """Limits of a container; huge pages that it does not request are limited to 0."""
    asked = container.resources
    limits = _linux(
        amount(asked.requests if "cpu" in asked.requests else asked.limits, "cpu"),
        amount(asked.limits, "cpu"),
        amount(asked.limits, "memory"),
    )
    limits.oom_score_adj = oom_score_adj(pod, container, node.memory)
    sizes = dict.fromkeys(node.huge_page_sizes, 0) | _huge_pages(asked.limits)
    for size, limit in sizes.items():
        limits.hugepage_limits.add(page_size=size, limit=limit)
    return limits


def pod_limits_message(pod: Pod) -> pb.LinuxContainerResources:
    """The sum over the containers of a pod, without overhead; runtimes with virtual machines size them by it."""
    requests, limits = pod_requests(pod, overhead=False), pod_limits(pod)
    zero = Quantity(0)
    cpu = limits.get("cpu", zero)
    return _linux(requests.get("cpu", cpu), cpu, limits.get("memory", zero))


def overhead_message(pod: Pod) -> pb.LinuxContainerResources:
    """The pod's overhead; it is guaranteed, so request and limit are equal."""
    if not pod.spec.overhead:
        return pb.LinuxContainerResources()
    cpu = amount(pod.spec.overhead, "cpu")
    return _linux(cpu, cpu, amount(pod.spec.overhead, "memory"))


def shares(milli: int) -> int:
    """cpu.shares from thousandths of a processor."""
    return min(max(milli * SHARES_PER_CPU // 1000, FEWEST_SHARES), MOST_SHARES)


def quota(milli: int) -> int:
    """Microseconds of processor time per period; 0 for no limit. The kernel accepts nothing below a millisecond."""
    return max(milli * PERIOD_MICROSECONDS // 1000, SMALLEST_QUOTA) if milli else 0


def _linux(request: Quantity, limit: Quantity, memory: Quantity) -> pb.LinuxContainerResources:
    return pb.LinuxContainerResources(
        cpu_shares=shares(request.milli()),
        cpu_quota=quota(limit.milli()),
        cpu_period=PERIOD_MICROSECONDS,
        memory_limit_in_bytes=memory.value(),
    )


def _huge_pages(limits: Quantities) -> dict[str, int]:
    return {
        _page_size(quantity(name.removeprefix(HUGE_PAGES)).value()): quantity(limit).value()
        for name, limit in limits.items()
        if name.startswith(HUGE_PAGES)
    }


def _page_size(size: int) -> str:
    """The page size as cgroup files name it: 2MB for 2Mi."""
    units = ["B", "KB", "MB", "GB"]
    while size >= 1024 and len(units) > 1:
        size //= 1024
        units.pop(0)
    return f"{size}{units[0]}"
