"""Resource requests of a pod, its QoS class and the OOM score of its containers. Pure."""

from collections.abc import Iterable, Mapping

from podwire.objects.containers import Container, Quantities, Requests
from podwire.objects.pods import Pod
from podwire.objects.quantity import Quantity, parse

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"

Amounts = dict[str, Quantity]

SYSTEM_CRITICAL = 2_000_000_000
"""The priority from which a pod is critical: it is not evicted, and it is admitted under pressure."""
NODE_CRITICAL = 2_000_001_000
"""The priority of system-node-critical: such a pod is protected like a guaranteed one."""
GUARANTEED_SCORE, BEST_EFFORT_SCORE = -997, 1000
_ZERO = Quantity(0)


def quantity(amount: str | float) -> Quantity:
    """A quantity as the API writes it: text, or a number."""
    return parse(amount if isinstance(amount, str) else str(amount))


def amount(amounts: Quantities, name: str) -> Quantity:
    """Zero if the resource is not named."""
    value = amounts.get(name)
    return _ZERO if value is None else quantity(value)


def pod_requests(pod: Pod, *, overhead: bool = True) -> Amounts:
    """The larger of what runs together, and of what one init container and the sidecars started before it need."""
    requests = {container.name: container.resources.requests for container in pod.spec.every_container}
    total = _together(pod, requests)
    return _sum([total, _parsed(pod.spec.overhead)]) if overhead else total


def pod_limits(pod: Pod) -> Amounts:
    """Limits of the pod, as far as its containers have limits."""
    return _together(pod, {container.name: container.resources.limits for container in pod.spec.every_container})


def qos_class(pod: Pod) -> str:
    """Guaranteed if all containers have limits of cpu and memory equal to their requests, BestEffort if none has."""
    return pod.status.qos_class or _class_of(
        _container_class(container.resources) for container in (*pod.spec.init_containers, *pod.spec.containers)
    )


def is_critical(pod: Pod) -> bool:
    """Whether a pod is needed for the node to work: a static pod, or one of a system priority class."""
    return pod.static or pod.spec.priority >= SYSTEM_CRITICAL


def oom_score_adj(pod: Pod, container: Container, memory_capacity: int) -> int:
    """oom_score_adj: containers with a higher score are killed first.

    The more memory a burstable container requests, the lower is its score, so that one that uses more than it requested
    is killed first.
    """
    class_ = qos_class(pod)
    if class_ == GUARANTEED or pod.spec.priority >= NODE_CRITICAL:
        return GUARANTEED_SCORE
    if class_ == BEST_EFFORT:
        return BEST_EFFORT_SCORE
    requested = _memory(container)
    if container.sidecar and container in pod.spec.init_containers:
        requested = max(requested, min(map(_memory, pod.spec.containers), default=0))
    score = 1000 - 1000 * requested // memory_capacity
    return min(max(score, 1000 + GUARANTEED_SCORE), BEST_EFFORT_SCORE - 1)


def _memory(container: Container) -> int:
    return amount(container.resources.requests, "memory").value()


def _together(pod: Pod, amounts: Mapping[str, Quantities]) -> Amounts:
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in pod.spec.init_containers:
        own = _parsed(amounts[container.name])
        if container.sidecar:
            sidecars = own = _sum([sidecars, own])
        else:
            own = _sum([sidecars, own])
        most = _larger(most, own)
    running = _sum([sidecars, *(_parsed(amounts[container.name]) for container in pod.spec.containers)])
    return _larger(running, most)


def _parsed(amounts: Quantities) -> Amounts:
    return {name: quantity(amount_) for name, amount_ in amounts.items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount_ in part.items():
            total[name] = total[name] + amount_ if name in total else amount_
    return total


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {**one, **{name: max(amount_, one.get(name, amount_)) for name, amount_ in other.items()}}


def _container_class(resources: Requests) -> str:
    """The class of a pod with this container alone."""
    if not resources.requests and not resources.limits:
        return BEST_EFFORT
    return _class_of(
        _resource_class(amount(resources.requests, name), amount(resources.limits, name)) for name in ("cpu", "memory")
    )


def _resource_class(request: Quantity, limit: Quantity) -> str:
    if request != limit:
        return BURSTABLE
    return GUARANTEED if request else BEST_EFFORT


def _class_of(classes: Iterable[str]) -> str:
    """The common class; Burstable if they differ."""
    different = set(classes)
    return different.pop() if len(different) == 1 else BURSTABLE if different else BEST_EFFORT
