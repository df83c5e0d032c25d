"""The requests and limits of a whole pod: the most that it may use at any time of its life. Pure.

While an init container runs, the sidecars started before it run too; afterwards all sidecars and containers do. What
the pod itself requests replaces the sum.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from podwire.objects import quantity
from podwire.objects.quantity import Quantity

Amounts = dict[str, Quantity]
Json = Mapping[str, Any]


def amounts(given: Mapping[str, str] | None) -> Amounts:
    """Parses quantities; raises ValueError for an invalid one."""
    return {name: quantity.parse(text) for name, text in (given or {}).items()}


def add(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> Amounts:
    return {name: one[name] + other[name] if name in one and name in other else one.get(name, other.get(name, ZERO))
            for name in {**one, **other}}  # fmt: skip


def maximum(*parts: Mapping[str, Quantity]) -> Amounts:
    largest: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            if name not in largest or amount > largest[name]:
                largest[name] = amount
    return largest


ZERO = Quantity(0)


def pod_requests(spec: Json) -> Amounts:
    """Returns the requests without the overhead of the sandbox."""
    return _whole(spec, "requests", lambda container: amounts((container.get("resources") or {}).get("requests")))


def pod_limits(spec: Json) -> Amounts:
    return _whole(spec, "limits", lambda container: amounts((container.get("resources") or {}).get("limits")))


def used_requests(pod: Json) -> Amounts:
    """Returns what a pod counts for: the overhead included, and a pod that is being resized down counts for what it
    still holds."""
    spec, held = pod.get("spec") or {}, _Held(pod)
    requests = maximum(*([] if held.infeasible else [_sum(spec, _own("requests"))]),
                       _sum(spec, held.allocated), _sum(spec, held.actuated))  # fmt: skip
    return add({**requests, **_of_pod(spec, "requests")}, amounts(spec.get("overhead")))


def used_limits(pod: Json) -> Amounts:
    spec, held = pod.get("spec") or {}, _Held(pod)
    limits = maximum(*([] if held.infeasible else [_sum(spec, _own("limits"))]), _sum(spec, held.limited))
    limits = {**limits, **_of_pod(spec, "limits")}
    overhead = {name: amount for name, amount in amounts(spec.get("overhead")).items() if limits.get(name)}
    return add(limits, overhead)


Getter = Callable[[Json], Amounts]


def _own(part: str) -> Getter:
    return lambda container: amounts((container.get("resources") or {}).get(part))


class _Held:
    """The resources that containers were given, by their statuses."""

    def __init__(self, pod: Json) -> None:
        status = pod.get("status") or {}
        statuses: Iterable[Json] = (
            *(status.get("containerStatuses") or ()),
            *(status.get("initContainerStatuses") or ()),
        )
        self._by_name = {container.get("name", ""): container for container in statuses}
        self.infeasible = any(
            condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
            for condition in status.get("conditions") or ()
        )

    def allocated(self, container: Json) -> Amounts:
        status = self._by_name.get(container["name"]) or {}
        if status.get("allocatedResources") is not None:
            return amounts(status["allocatedResources"])
        return {} if self.infeasible else _own("requests")(container)

    def actuated(self, container: Json) -> Amounts:
        status = self._by_name.get(container["name"]) or {}
        requests = (status.get("resources") or {}).get("requests")
        return amounts(requests) if requests is not None else self.allocated(container)

    def limited(self, container: Json) -> Amounts:
        status = self._by_name.get(container["name"]) or {}
        limits = (status.get("resources") or {}).get("limits")
        if limits is not None:
            return amounts(limits)
        return {} if self.infeasible else _own("limits")(container)


def _whole(spec: Json, part: str, own: Getter) -> Amounts:
    return {**_sum(spec, own), **_of_pod(spec, part)}


def _of_pod(spec: Json, part: str) -> Amounts:
    given = amounts((spec.get("resources") or {}).get(part))
    return {name: amount for name, amount in given.items() if is_pod_level(name)}


def is_pod_level(name: str) -> bool:
    """Returns whether a whole pod can request a resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _sum(spec: Json, own: Getter) -> Amounts:
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, own(container))
            starting = maximum(starting, sidecars)
        else:
            starting = maximum(starting, add(own(container), sidecars))
    running = sidecars
    for container in spec.get("containers") or ():
        running = add(running, own(container))
    return maximum(running, starting)
