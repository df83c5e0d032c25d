"""The order in which pods are evicted, and the message. Pure."""

from collections.abc import Iterable, Mapping

from podwire.kubelet.config.resources import amount, pod_requests
from podwire.kubelet.eviction.thresholds import SIGNALS, Observation, Threshold
from podwire.kubelet.eviction.usage import PodUsage
from podwire.objects.pods import Pod
from podwire.objects.quantity import NANO, Format, Quantity

_NONE = PodUsage()


def rank(pods: Iterable[Pod], usage: Mapping[str, PodUsage], resource: str) -> list[Pod]:
    """First the pod whose usage is unknown, then those above their requests, of lower priority, furthest above.

    Process ids are not requested: by priority, then by their number.
    """

    def key(pod: Pod) -> tuple[bool, bool, int, int]:
        used = usage.get(pod.uid, _NONE).of(resource)
        above = used - requested(pod, resource)
        exceeds = above > 0 and resource != "pids"
        return pod.uid in usage, not exceeds, pod.spec.priority, -above

    return sorted(pods, key=key)


def requested(pod: Pod, resource: str) -> int:
    quantity = pod_requests(pod).get(resource)
    return 0 if quantity is None else quantity.value()


def message(
    pod: Pod, used: PodUsage | None, resource: str, thresholds: Iterable[Threshold], observed: Mapping[str, Observation]
) -> str:
    """Why a pod is evicted, in upstream's words."""
    text = f"The node was low on resource: {resource}. "
    crossed = next((threshold for threshold in thresholds if SIGNALS[threshold.signal].resource == resource), None)
    if crossed is not None and crossed.signal in observed:
        seen = observed[crossed.signal]
        quantity, available = _amount(crossed.of(seen.capacity), resource), _amount(seen.available, resource)
        text += f"Threshold quantity: {quantity}, available: {available}. "
    if used is None or resource not in ("memory", "ephemeral-storage"):
        return text
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name not in used.containers:
            continue
        usage = used.containers[container.name]
        current = usage.memory if resource == "memory" else usage.disk
        request = amount(container.resources.requests, resource)
        if current > request.value():
            text += (
                f"Container {container.name} was using {_amount(current, resource)}, request is {request.canonical()}, "
                f"has larger consumption of {resource}. "
            )
    return text


def _amount(value: int, resource: str) -> str:
    kind = Format.DECIMAL_SI if resource in ("inodes", "pids") else Format.BINARY_SI
    return Quantity(value * NANO, kind).canonical()
