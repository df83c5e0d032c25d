"""How many replicas a metric calls for. Pure; the numbers are upstream's, in thousandths of a unit.

| pods | scale up | scale down |
|---|---|---|
| being deleted, failed | are left out | are left out |
| pending; of CPU also not ready yet, or without a whole window since they are | count as using nothing | are left out |
| without a metric | count as using nothing | count as using all of their request, or exactly the target |

A result that such guesses would turn from one direction into the other changes nothing.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.objects.quantity import parse as parse_quantity
from podwire.objects.times import parse as parse_time

CPU = "cpu"
MOST = 2**31 - 1


class NoReplicas(Exception):
    """Says why no number of replicas can be computed."""


class Resources(msgspec.Struct):
    requests: dict[str, Any] = {}


class Container(msgspec.Struct, rename="camel"):
    name: str = ""
    restart_policy: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)


class PodSpec(msgspec.Struct, rename="camel"):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources | None = None


class Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()


class Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    deletion_timestamp: str | None = None


class Pod(msgspec.Struct):
    """The parts of a pod that count."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def ready(self) -> Condition | None:
        return next((condition for condition in self.status.conditions if condition.type == "Ready"), None)


@dataclass(frozen=True, slots=True)
class PodMetric:
    value: int
    time: float = 0.0
    window: float = 0.0


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Ratios of usage to target within which nothing is changed: from 1 - down to 1 + up."""

    down: float = 0.1
    up: float = 0.1

    def within(self, ratio: float) -> bool:
        return (1.0 - self.down) <= ratio <= (1.0 + self.up)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The present, and upstream's two periods of readiness, in seconds."""

    now: float
    cpu_initialization: float = 300.0
    initial_readiness: float = 30.0


@dataclass(frozen=True, slots=True)
class Groups:
    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


def group_pods(pods: Sequence[Pod], metrics: Mapping[str, PodMetric], resource: str, moment: Moment) -> Groups:
    """Returns which pods count; see the table above."""
    ready, unready, missing, ignored = 0, set(), set(), set()
    for pod in pods:
        if pod.metadata.deletion_timestamp or pod.status.phase == "Failed":
            ignored.add(pod.name)
        elif pod.status.phase == "Pending":
            unready.add(pod.name)
        elif pod.name not in metrics:
            missing.add(pod.name)
        elif resource == CPU and _is_unready(pod, metrics[pod.name], moment):
            unready.add(pod.name)
        else:
            ready += 1
    return Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_unready(pod: Pod, metric: PodMetric, moment: Moment) -> bool:
    condition = pod.ready
    if condition is None or not pod.status.start_time:
        return True
    started, changed = (
        parse_time(pod.status.start_time),
        parse_time(condition.last_transition_time or "1970-01-01T00:00:00Z"),
    )
    if started + moment.cpu_initialization > moment.now:
        return condition.status == "False" or metric.time < changed + metric.window
    return condition.status == "False" and started + moment.initial_readiness > changed


def requests_of(pods: Sequence[Pod], container: str, resource: str) -> dict[str, int]:
    """Returns the request of each pod, or of one container of it. Raises NoReplicas."""
    return {pod.name: _request(pod, container, resource) for pod in pods}


def _request(pod: Pod, container: str, resource: str) -> int:
    if pod.spec.resources is not None and pod.spec.resources.requests and not container:
        if resource not in pod.spec.resources.requests:
            raise NoReplicas(f"missing pod-level request for {resource} in Pod {pod.name}")
        return _milli(pod.spec.resources.requests[resource])
    sidecars = (init for init in pod.spec.init_containers if init.restart_policy == "Always")
    containers = [spec for spec in (*pod.spec.containers, *sidecars) if container in ("", spec.name)]
    if container and not containers:
        raise NoReplicas(f"container {container} not found in Pod {pod.name}")
    for spec in containers:
        if resource not in spec.resources.requests:
            raise NoReplicas(f"missing request for {resource} in container {spec.name} of Pod {pod.name}")
    return sum(_milli(spec.resources.requests[resource]) for spec in containers)


def _milli(quantity: object) -> int:
    return parse_quantity(str(quantity)).milli()


@dataclass(frozen=True, slots=True)
class Calculated:
    """The replicas that a metric calls for, and the usage that its status shows."""

    replicas: int
    usage: int
    """The average, or the whole of an object's or an external metric."""
    utilization: int | None = None
    """Percent of the request."""


def utilization_replicas(
    current: int,
    target: int,
    resource: str,
    container: str,
    pods: Sequence[Pod],
    metrics: Mapping[str, PodMetric],
    tolerances: Tolerances,
    moment: Moment,
) -> Calculated:
    """Returns the replicas for a percentage of the requests. Raises NoReplicas."""
    if not pods:
        raise NoReplicas("no pods returned by selector while calculating replica count")
    groups = group_pods(pods, metrics, resource, moment)
    values = _counted(metrics, groups)
    requests = requests_of(pods, container, resource)

    def ratio(used: Mapping[str, int]) -> tuple[float, int, int]:
        known = [name for name in used if name in requests]
        total = sum(requests[name] for name in known)
        if not total:
            raise NoReplicas("no metrics returned matched known pods")
        spent = sum(used[name] for name in known)
        percent = spent * 100 // total
        return percent / target, percent, spent // len(known)

    first, percent, average = ratio(values)
    replicas = _settled(
        current,
        first,
        values,
        groups,
        lambda used: ratio(used)[0],
        lambda name: requests[name] * max(100, target) // 100,
        tolerances,
    )
    return Calculated(replicas, average, percent)


def average_replicas(
    current: int,
    target: int,
    resource: str,
    pods: Sequence[Pod],
    metrics: Mapping[str, PodMetric],
    tolerances: Tolerances,
    moment: Moment,
) -> Calculated:
    """Returns the replicas for an average value of each pod; `resource` is empty for a custom metric. NoReplicas."""
    if not pods:
        raise NoReplicas("no pods returned by selector while calculating replica count")
    groups = group_pods(pods, metrics, resource, moment)
    values = _counted(metrics, groups)

    def average(used: Mapping[str, int]) -> int:
        return sum(used.values()) // len(used)

    usage = average(values)
    replicas = _settled(
        current,
        usage / target,
        values,
        groups,
        lambda used: average(used) / target,
        lambda _name: target,
        tolerances,
    )
    return Calculated(replicas, usage)


def _counted(metrics: Mapping[str, PodMetric], groups: Groups) -> dict[str, int]:
    left_out = groups.ignored | groups.unready
    values = {name: metric.value for name, metric in metrics.items() if name not in left_out}
    if not values:
        raise NoReplicas("did not receive metrics for targeted pods (pods might be unready)")
    return values


def _settled(
    current: int,
    ratio: float,
    values: dict[str, int],
    groups: Groups,
    ratio_of: Callable[[Mapping[str, int]], float],
    most_of: Callable[[str], int],
    tolerances: Tolerances,
) -> int:
    """Returns the replicas for a ratio, after guessing what pods without a metric use."""
    grows_with_unready = bool(groups.unready) and ratio > 1.0
    if not grows_with_unready and not groups.missing:
        return current if tolerances.within(ratio) else math.ceil(ratio * groups.ready)
    guessed = dict(values)
    if ratio < 1.0:
        guessed |= {name: most_of(name) for name in groups.missing}
    elif ratio > 1.0:
        guessed |= dict.fromkeys(groups.missing, 0)
    if grows_with_unready:
        guessed |= dict.fromkeys(groups.unready, 0)
    again = ratio_of(guessed)
    if tolerances.within(again) or (ratio < 1.0 < again) or (again < 1.0 < ratio):
        return current
    replicas = math.ceil(again * len(guessed))
    turned = (again < 1.0 and replicas > current) or (again > 1.0 and replicas < current)
    return current if turned else replicas


def ready_pods(pods: Collection[Pod]) -> int:
    """Returns how many pods run and are ready. Raises NoReplicas."""
    if not pods:
        raise NoReplicas("unable to calculate ready pods: no pods returned by selector while calculating replica count")
    return sum(pod.status.phase == "Running" and pod.ready is not None and pod.ready.status == "True" for pod in pods)


def value_replicas(current: int, usage: int, target: int, pods: Collection[Pod], tolerances: Tolerances) -> Calculated:
    """Returns the replicas for the value of an object's or external metric. Raises NoReplicas."""
    ratio = usage / target
    if current == 0:
        return Calculated(min(MOST, math.ceil(ratio)), usage)
    if tolerances.within(ratio):
        return Calculated(current, usage)
    return Calculated(min(MOST, math.ceil(ratio * ready_pods(pods))), usage)


def per_pod_replicas(present: int, usage: int, target: int, tolerances: Tolerances) -> Calculated:
    """Returns the replicas for such a metric divided by the number of pods."""
    shared = usage / (target * present) if present else math.inf
    replicas = present if tolerances.within(shared) else min(MOST, math.ceil(usage / target))
    return Calculated(replicas, -(-usage // present) if present else usage)
