"""What a pod asks of its node, and how well it is protected there when memory runs out. Pure."""

from collections.abc import Iterable, Mapping

from podwire.objects.containers import Container, Quantities, Requests
from podwire.objects.pods import Pod
from podwire.objects.quantity import Quantity, parse

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"

Amounts = dict[str, Quantity]

NODE_CRITICAL = 2_000_001_000
"""The priority of system-node-critical: such a pod is as well protected as a guaranteed one."""
GUARANTEED_SCORE, BEST_EFFORT_SCORE = -997, 1000
_ZERO = Quantity(0)


def quantity(amount: str | float) -> Quantity:
    """An amount as the API writes it: mostly text, but a number is one too."""
    return parse(amount if isinstance(amount, str) else str(amount))


def amount(amounts: Quantities, name: str) -> Quantity:
    """Nothing, when it is not there."""
    found = amounts.get(name)
    return _ZERO if found is None else quantity(found)


def pod_requests(pod: Pod, *, overhead: bool = True) -> Amounts:
    """What the pod needs at once: all that runs together, or one init container beside the sidecars started before it,
    whichever is more."""
    total = _together(pod, {each.name: each.resources.requests for each in pod.spec.every_container})
    return _sum([total, _parsed(pod.spec.overhead)]) if overhead else total


def pod_limits(pod: Pod) -> Amounts:
    """The most that the pod may take, as far as its containers have limits."""
    return _together(pod, {each.name: each.resources.limits for each in pod.spec.every_container})


def qos_class(pod: Pod) -> str:
    """Guaranteed when all containers have limits of processor and memory and request as much; BestEffort when none
    asks for anything."""
    return pod.status.qos_class or _class_of(
        _shape(each.resources) for each in (*pod.spec.init_containers, *pod.spec.containers)
    )


def oom_score_adj(pod: Pod, container: Container, memory_capacity: int) -> int:
    """Who is killed first when memory runs out: the higher, the sooner.

    A burstable container is the safer the more it requested, so that whoever takes more than that goes first.
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


def _together(pod: Pod, asked: Mapping[str, Quantities]) -> Amounts:
    sidecars: Amounts = {}
    most: Amounts = {}
    for each in pod.spec.init_containers:
        own = _parsed(asked[each.name])
        if each.sidecar:
            sidecars = own = _sum([sidecars, own])
        else:
            own = _sum([sidecars, own])
        most = _larger(most, own)
    running = _sum([sidecars, *(_parsed(asked[each.name]) for each in pod.spec.containers)])
    return _larger(running, most)


def _parsed(amounts: Quantities) -> Amounts:
    return {name: quantity(each) for name, each in amounts.items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, each in part.items():
            total[name] = total[name] + each if name in total else each
    return total


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {**one, **{name: max(each, one.get(name, each)) for name, each in other.items()}}


def _shape(asked: Requests) -> str:
    """The class of a pod with this container alone."""
    if not asked.requests and not asked.limits:
        return BEST_EFFORT
    return _class_of(_side(amount(asked.requests, name), amount(asked.limits, name)) for name in ("cpu", "memory"))


def _side(request: Quantity, limit: Quantity) -> str:
    if request != limit:
        return BURSTABLE
    return GUARANTEED if request else BEST_EFFORT


def _class_of(shapes: Iterable[str]) -> str:
    """What is not all of one kind is in between."""
    found = set(shapes)
    return found.pop() if len(found) == 1 else BURSTABLE if found else BEST_EFFORT
