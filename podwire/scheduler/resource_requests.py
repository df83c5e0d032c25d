"""Resource requests of pods: cpu in millis, everything else in units."""

from collections.abc import Iterable, Mapping
from typing import Any

from podwire.objects import quantity
from podwire.objects.containers import Container
from podwire.objects.pods import Pod

Resources = dict[str, int]

CPU, MEMORY, PODS = "cpu", "memory", "pods"

DEFAULT_REQUESTS: Mapping[str, int] = {CPU: 100, MEMORY: 200 * 1024 * 1024}
"""Usage that is assumed for a container without requests when nodes are scored; it may still be placed anywhere."""


def amounts(quantities: Mapping[str, Any]) -> Resources:
    """Parses quantities; raises ValueError for an invalid one."""
    parsed = {name: quantity.parse(str(value)) for name, value in quantities.items()}
    return {name: value.milli() if name == CPU else value.value() for name, value in parsed.items()}


def pod_requests(pod: Pod, whole: Mapping[str, Any], *, silent: Mapping[str, int] | None = None) -> Resources:
    """Returns the maximum that the pod requests at any time of its life, plus the overhead of its sandbox.

    While an init container runs, the sidecars started before it run too; afterwards all sidecars and containers do.
    `whole` is spec.resources.requests of the pod, which replaces the sum.
    """
    # A container that is being resized down still holds the larger amount.
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    allocated = {
        status.get("name", ""): {
            **((status.get("resources") or {}).get("requests") or {}),
            **(status.get("allocatedResources") or {}),
        }
        for status in statuses
    }
    sidecars: Resources = {}
    starting: Resources = {}
    for init_container in pod.spec.init_containers:
        asked = _container(init_container, allocated, silent)
        if init_container.sidecar:
            sidecars = _sum((sidecars, asked))
        else:
            starting = _maximum(starting, _sum((sidecars, asked)))
    running = _sum((sidecars, *(_container(container, allocated, silent) for container in pod.spec.containers)))
    return _sum(({**_maximum(starting, running), **amounts(whole)}, amounts(pod.spec.overhead)))


def _container(
    container: Container, allocated: Mapping[str, Mapping[str, Any]], silent: Mapping[str, int] | None
) -> Resources:
    asked = amounts(container.resources.requests)
    if container.name in allocated:
        asked = _maximum(asked, amounts(allocated[container.name]))
    return {**silent, **asked} if silent else asked


def _sum(parts: Iterable[Mapping[str, int]]) -> Resources:
    total: Resources = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _maximum(one: Mapping[str, int], other: Mapping[str, int]) -> Resources:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
