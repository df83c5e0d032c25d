"""How much of a node a pod asks for: cpu in thousandths, everything else in ones."""

from collections.abc import Iterable, Mapping
from typing import Any

from podwire.objects import quantity
from podwire.objects.containers import Container
from podwire.objects.pods import Pod

Resources = dict[str, int]

CPU, MEMORY, PODS = "cpu", "memory", "pods"

SILENT: Mapping[str, int] = {CPU: 100, MEMORY: 200 * 1024 * 1024}
"""What a container that asks for nothing is taken to use when nodes are compared; it may still be placed anywhere."""


def amounts(quantities: Mapping[str, Any]) -> Resources:
    """Raises ValueError for what is no quantity."""
    return {name: _amount(name, quantity.parse(str(value))) for name, value in quantities.items()}


def _amount(name: str, value: quantity.Quantity) -> int:
    return value.milli() if name == CPU else value.value()


def pod_requests(pod: Pod, whole: Mapping[str, Any], *, silent: Mapping[str, int] | None = None) -> Resources:
    """The most that the pod holds at any time of its life, and what its sandbox costs.

    While an init container runs, the sidecars started before it run too; afterwards all sidecars and containers do.
    `whole` is what the pod asks for as a whole (spec.resources.requests), which then counts instead of the sum.
    """
    allotted = _allotted(pod)
    sidecars: Resources = {}
    starting: Resources = {}
    for each in pod.spec.init_containers:
        asked = _container(each, allotted, silent)
        if each.sidecar:
            sidecars = _sum((sidecars, asked))
        else:
            starting = _larger(starting, _sum((sidecars, asked)))
    running = _sum((sidecars, *(_container(each, allotted, silent) for each in pod.spec.containers)))
    return _sum(({**_larger(starting, running), **amounts(whole)}, amounts(pod.spec.overhead)))


def _container(
    container: Container, allotted: Mapping[str, Mapping[str, Any]], silent: Mapping[str, int] | None
) -> Resources:
    asked = amounts(container.resources.requests)
    if container.name in allotted:
        asked = _larger(asked, amounts(allotted[container.name]))
    return {**silent, **asked} if silent else asked


def _allotted(pod: Pod) -> dict[str, Mapping[str, Any]]:
    """What containers hold already: while one is being resized to less, it still holds the more."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {
        each.get("name", ""): {
            **((each.get("resources") or {}).get("requests") or {}),
            **(each.get("allocatedResources") or {}),
        }
        for each in statuses
    }


def _sum(parts: Iterable[Mapping[str, int]]) -> Resources:
    total: Resources = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> Resources:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
