"""Resizing in place: cpu and memory of a pod's containers change while they run.

    desired     the API's spec
    allocated   what this kubelet has accepted; the pod is started, counted and reported with it
    actuated    what was sent to the runtime for each container that runs

1. A spec that differs from the allocation is accepted if it fits the node beside the allocations of the other pods;
   else it is pending: Infeasible if it can never fit, Deferred until other pods end or are resized.
2. The new allocation is on disk before anything is changed, then the resize is in progress.
3. The runtime is called, or the container is restarted, as its resizePolicy says. A failed call is retried.

A pod that was never resized has no record: its allocation is the spec at first sight, or, after a restart of the
kubelet, what the status in the API has.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podwire.durable.codecs import json_codec
from podwire.durable.records import Problem, Records
from podwire.kubelet.config.resources import amount
from podwire.kubelet.pods.observed import ObservedPod
from podwire.objects.containers import Container, Requests
from podwire.objects.pods import Pod
from podwire.tasks.uncancelled import thread_to_completion

FORMAT = 1
RESIZABLE = ("cpu", "memory")
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
CONDITIONS = (PENDING, IN_PROGRESS)
"""Conditions that a pod has only while they are true."""
INFEASIBLE, DEFERRED, ERROR = "Infeasible", "Deferred", "Error"

Resources = Mapping[str, Requests]


class Amounts(NamedTuple):
    """Requests and limits of a container that can be resized: milli-processors and bytes, 0 for none."""

    cpu_request: int
    cpu_limit: int
    memory_request: int
    memory_limit: int

    def changed(self, other: "Amounts") -> tuple[str, ...]:
        """The resources in which two containers differ."""
        cpu, memory = self[:2] != other[:2], self[2:] != other[2:]
        return tuple(name for name, differs in zip(RESIZABLE, (cpu, memory), strict=True) if differs)


def amounts(resources: Requests) -> Amounts:
    requests, limits = resources.requests, resources.limits
    return Amounts(
        amount(requests, "cpu").milli(),
        amount(limits, "cpu").milli(),
        amount(requests, "memory").value(),
        amount(limits, "memory").value(),
    )


def resources_of(pod: Pod) -> dict[str, Requests]:
    """By container name."""
    return {container.name: container.resources for container in _resizable(pod)}


def with_resources(pod: Pod, allocated: Resources) -> Pod:
    """The pod with these resources; the very same object if it has them already."""
    if all(_same(container, allocated) for container in _resizable(pod)):
        return pod

    def replaced(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(
            container
            if _same(container, allocated)
            else msgspec.structs.replace(
                container,
                resources=msgspec.structs.replace(
                    container.resources,
                    requests=_merged(container.resources.requests, allocated[container.name].requests),
                    limits=_merged(container.resources.limits, allocated[container.name].limits),
                ),
            )
            for container in containers
        )

    spec = msgspec.structs.replace(
        pod.spec, containers=replaced(pod.spec.containers), init_containers=replaced(pod.spec.init_containers)
    )
    return msgspec.structs.replace(pod, spec=spec)


def reported_resources(pod: Pod) -> dict[str, Requests]:
    """The resources that the status has of containers, as an earlier kubelet reported them."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {
        status["name"]: msgspec.convert(status["resources"], Requests)
        for status in statuses
        if status.get("resources") and status.get("containerID") and "name" in status
    }


def restart_required(container: Container, before: Amounts) -> bool:
    """Whether a container has to be restarted for a change of its resources."""
    changed = before.changed(amounts(container.resources))
    return any(
        policy.resource_name in changed and policy.restart_policy == "RestartContainer"
        for policy in container.resize_policy
    )


def summary(pod: Pod, error: str = "") -> str:
    """The resources of a pod as upstream's events have them."""

    def listed(containers: tuple[Container, ...]) -> list[dict[str, Any]]:
        return [
            {"name": container.name, "resources": msgspec.to_builtins(container.resources)} for container in containers
        ]

    parts: dict[str, Any] = {}
    if pod.spec.init_containers:
        parts["initContainers"] = listed(pod.spec.init_containers)
    parts |= {"containers": listed(pod.spec.containers), "generation": pod.metadata.generation}
    return msgspec.json.encode({**parts, **({"error": error} if error else {})}).decode()


class Condition(NamedTuple):
    """Reason and message of a resize that is pending or in progress, and the generation that it is about."""

    reason: str
    message: str
    generation: int


class ResizeState:
    """The resize of one pod. A restart of the kubelet loses only messages: allocations are in `Allocations`."""

    def __init__(self) -> None:
        self.pending: Condition | None = None
        self.in_progress: Condition | None = None
        self.actuated: dict[str, Requests] = {}
        """By container id: the resources that were sent to the runtime, of containers that run."""
        self.not_before = 0.0
        """No new attempt before this time."""

    @property
    def conditions(self) -> dict[str, Condition]:
        """By type: those that the pod has now."""
        both = ((PENDING, self.pending), (IN_PROGRESS, self.in_progress))
        return {type_: condition for type_, condition in both if condition is not None}

    def observe(self, pod: Pod, observed: ObservedPod, recorded: Resources) -> None:
        """Note containers that have started: they have the allocation, except those that `recorded` knows better."""
        running = {container.id: container.name for container in observed.running}
        if running.keys() == self.actuated.keys():
            return
        allocated = resources_of(pod)
        self.actuated = {
            id_: self.actuated.get(id_) or recorded.get(id_) or allocated[name]
            for id_, name in running.items()
            if name in allocated
        }

    def complete(self, pod: Pod, observed: ObservedPod) -> bool:
        """Whether every container that runs has what is allocated for it."""
        allocated = resources_of(pod)
        return all(
            amounts(self.actuated[container.id]) == amounts(allocated[container.name])
            for container in observed.running
            if container.id in self.actuated
        )


class Allocation(msgspec.Struct, frozen=True):
    """The record of a pod that was resized: allocated resources by container name, actuated ones by container id."""

    allocated: dict[str, Requests]
    actuated: dict[str, Requests]


class Allocations:
    """Allocations of all pods. One caller for each pod at a time."""

    def __init__(self, directory: Path, report: Callable[[Problem], None] | None = None) -> None:
        self._records = Records(directory, json_codec(Allocation), format=FORMAT, report=report)
        self._resized: dict[str, Allocation] = {}
        self._first: dict[str, Resources] = {}
        """By uid: the allocation of pods that were never resized."""

    def load(self) -> None:
        """Blocks. Raises NewerFormat."""
        self._resized = self._records.load()

    @property
    def uids(self) -> set[str]:
        return set(self._resized)

    def allocated(self, pod: Pod) -> Pod:
        """The pod with its allocated resources; the very same object if the spec has them."""
        record = self._resized.get(pod.uid)
        if record is not None:
            return with_resources(pod, record.allocated)
        if pod.uid not in self._first:
            self._first[pod.uid] = {**resources_of(pod), **reported_resources(pod)}
        return with_resources(pod, self._first[pod.uid])

    def actuated(self, uid: str) -> Resources:
        """By container id, as far as it was recorded."""
        record = self._resized.get(uid)
        return {} if record is None else record.actuated

    async def record(self, pod: Pod, actuated: Resources) -> None:
        """Allocate the resources of this spec, durably. Raises OSError."""
        record = Allocation(resources_of(pod), dict(actuated))
        await thread_to_completion(self._records.put, pod.uid, record)
        self._resized[pod.uid] = record

    async def forget(self, uid: str) -> None:
        """The pod has no resources any more. Raises OSError."""
        self._first.pop(uid, None)
        if uid in self._resized:
            await thread_to_completion(self._records.remove, uid)
            self._resized.pop(uid, None)


def _resizable(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers
    yield from pod.spec.containers


def _same(container: Container, allocated: Resources) -> bool:
    resources = allocated.get(container.name)
    if resources is None or resources == container.resources:
        return True
    return amounts(resources) == amounts(container.resources)


def _merged(desired: Mapping[str, Any], allocated: Mapping[str, Any]) -> dict[str, Any]:
    """Resources that cannot be resized are those of the spec."""
    fixed = {name: value for name, value in desired.items() if name not in RESIZABLE}
    return {**fixed, **{name: value for name, value in allocated.items() if name in RESIZABLE}}
