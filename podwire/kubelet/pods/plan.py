"""Plans the next actions for a pod from its spec and its state in the runtime, as computePodActions does. Pure.

The worker plans again after every action, so that a plan may stop at the first thing that others have to wait for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from podwire.kubelet.pods.actions import (
    Action,
    EndContainers,
    KillContainer,
    Plan,
    RemoveContainer,
    RemoveSandbox,
    RunSandbox,
    StartContainer,
    StopSandbox,
    UpdateContainer,
)
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod, Sandbox
from podwire.kubelet.pods.resize import Amounts, amounts, restart_required
from podwire.kubelet.probes.threshold import Unhealthy
from podwire.objects.containers import Container, Requests
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb

KEPT = 2
"""Instances of each container: the present one and its predecessor, for `kubectl logs --previous` and lastState."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Inputs of a plan beside the pod and its state in the runtime. Times are monotonic."""

    now: float = 0.0
    sandbox_held: float = 0.0
    """No new sandbox before this time."""
    volumes_held: float = 0.0
    """No new start of any container before this time: the pod's volumes could not be set up."""
    held: Mapping[str, float] = field(default_factory=dict)
    """No new start of the container of this name before this time."""
    started: frozenset[str] = frozenset()
    """Ids of running containers whose startup probe, if they have one, has succeeded."""
    unhealthy: Mapping[str, Unhealthy] = field(default_factory=dict)
    """By container id."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """By container name: the hash of its spec."""
    deadline: float | None = None
    """When activeDeadlineSeconds is over."""
    actuated: Mapping[str, Requests] = field(default_factory=dict)
    """By container id: the resources that were sent to the runtime; compared if `resizing`."""
    resizing: bool = False
    """Whether containers may have other resources than the pod's spec says."""
    resize_held: float = 0.0
    """No new attempt to resize a container before this time."""


def plan(pod: Pod, observed: ObservedPod, facts: Facts) -> Plan:
    """The next actions for a pod that is not being deleted."""
    if outcome(pod, observed) is not None or (facts.deadline is not None and facts.now >= facts.deadline):
        return Plan(tuple(_stop_all(observed)))
    sandbox = observed.sandbox
    if sandbox is None or not sandbox.ready:
        return _new_sandbox(sandbox, observed, facts)
    course = _containers(pod, observed, sandbox, facts)
    times = [time for time in (course.wake_at, facts.deadline) if time is not None]
    actions = (*course.kills, *course.updates, *course.starts, *_leftovers(observed))
    return Plan(actions, min(times, default=None))


def outcome(pod: Pod, observed: ObservedPod) -> str | None:
    """Succeeded or Failed when no container of the pod will run again, else None."""
    if pod.finished:
        return pod.status.phase
    spec = pod.spec
    if spec.restart_policy == "Always" and not any(container.restart_policy for container in spec.every_container):
        return None
    if _failed_init(pod, observed):
        return "Failed"
    codes = []
    for container in spec.containers:
        latest = observed.latest(container.name)
        if latest is None or not latest.exited or restarts(pod, container, latest):
            return None
        codes.append(latest.exit_code)
    return "Failed" if any(codes) else "Succeeded"


def restarts(pod: Pod, container: Container, exited: ObservedContainer) -> bool:
    """Whether a container that exited starts again."""
    if container in pod.spec.ephemeral_containers:
        return False
    if any(rule.restarts(exited.exit_code) for rule in container.restart_policy_rules):
        return True
    policy = container.restart_policy or pod.spec.restart_policy
    if not container.restart_policy and policy == "Always" and container in pod.spec.init_containers:
        policy = "OnFailure"
    return policy == "Always" or (policy == "OnFailure" and exited.exit_code != 0)


def next_attempt(pod: Pod, name: str) -> int:
    """The attempt of a container that the runtime does not know: after the last one in the API's status."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.get("name") == name:
            return int(status.get("restartCount", 0)) + (1 if status.get("containerID") else 0)
    return 0


def _failed_init(pod: Pod, observed: ObservedPod) -> bool:
    for container in pod.spec.init_containers:
        latest = observed.latest(container.name)
        failed = latest is not None and latest.exited and latest.exit_code != 0
        if latest is not None and failed and not restarts(pod, container, latest):
            return True
    return False


def _stop_all(observed: ObservedPod) -> Iterator[Action]:
    """Kill what still runs, such as sidecars, then remove the network. Exited containers stay for `kubectl logs`."""
    if observed.running:
        yield EndContainers(observed.running)
    for sandbox in observed.sandboxes:
        if sandbox.ready:
            yield StopSandbox(sandbox.id)


def _new_sandbox(old: Sandbox | None, observed: ObservedPod, facts: Facts) -> Plan:
    """Replace the sandbox that failed, if there is one, so that none pile up."""
    times = [time for time in (facts.sandbox_held, facts.deadline) if time is not None]
    if facts.now < facts.sandbox_held:
        return Plan(wake_at=min(times))
    if old is None:
        return Plan((RunSandbox(0),))
    return Plan((StopSandbox(old.id), *_leftovers(observed), RunSandbox(old.attempt + 1)))


class _ContainerPlan:
    """Collects the actions for containers, one container after the other."""

    def __init__(self, pod: Pod, observed: ObservedPod, sandbox: Sandbox, facts: Facts) -> None:
        self.pod = pod
        self.observed = observed
        self.facts = facts
        self.here = {
            container.name: container for container in reversed(observed.containers) if container.sandbox == sandbox.id
        }
        self.kills: list[Action] = []
        self.starts: list[Action] = []
        self._updates: list[tuple[int, Action]] = []
        self.wake_at: float | None = None

    @property
    def updates(self) -> list[Action]:
        """Containers that give memory come before those that get it."""
        return [action for _, action in sorted(self._updates, key=lambda update: update[0])]

    def add(self, container: Container) -> bool:
        """Plan for one container; returns whether the next init container may start."""
        seen = self.here.get(container.name)
        if seen is None:
            self._first(container)
            return False
        if seen.running:
            return self._running(container, seen)
        if seen.state == pb.CONTAINER_CREATED:
            # Its start failed, or the kubelet died before it; its configuration may be outdated by now.
            self._start(container, seen.attempt, RemoveContainer(seen.id))
            return False
        if not restarts(self.pod, container, seen):
            return True
        self._start(container, seen.attempt + 1)
        return False

    def _first(self, container: Container) -> None:
        """The container is new in this sandbox; in an earlier one it may have run, and even succeeded."""
        before = self.observed.latest(container.name)
        if before is None:
            self._start(container, next_attempt(self.pod, container.name))
        elif container in self.pod.spec.init_containers or restarts(self.pod, container, before):
            self._start(container, before.attempt + 1)

    def _running(self, container: Container, seen: ObservedContainer) -> bool:
        unhealthy = self.facts.unhealthy.get(seen.id)
        if unhealthy is not None:
            restarted = restarts(self.pod, container, replace(seen, exit_code=1))
            message = f"{unhealthy.message}, will be restarted" if restarted else unhealthy.message
            self.kills.append(KillContainer(container, seen, message, unhealthy.grace_seconds))
        elif seen.hash and self.facts.hashes.get(container.name, seen.hash) != seen.hash:
            # Replaced whatever the restart policy is.
            message = f"Container {container.name} definition changed, will be restarted"
            self.kills.append(KillContainer(container, seen, message))
            self.starts.append(StartContainer(container, seen.attempt + 1))
        elif self.facts.resizing and seen.id in self.facts.actuated:
            self._resize(container, seen, amounts(self.facts.actuated[seen.id]))
        plain = container in self.pod.spec.init_containers and not container.sidecar
        return not plain and seen.id in self.facts.started

    def _resize(self, container: Container, seen: ObservedContainer, actuated: Amounts) -> None:
        allocated = amounts(container.resources)
        if allocated == actuated:
            return
        if restart_required(container, actuated):
            message = f"Container {container.name} resize requires restart"
            self.kills.append(KillContainer(container, seen, message))
            self.starts.append(StartContainer(container, seen.attempt + 1))
        elif self.facts.resize_held <= self.facts.now:
            gain = allocated.memory_limit - actuated.memory_limit
            self._updates.append((gain, UpdateContainer(container, seen)))
        else:
            self._wake(self.facts.resize_held)

    def _wake(self, time: float) -> None:
        self.wake_at = time if self.wake_at is None else min(self.wake_at, time)

    def _start(self, container: Container, attempt: int, *before: Action) -> None:
        held = max(self.facts.held.get(container.name, 0.0), self.facts.volumes_held)
        if held <= self.facts.now:
            self.starts += [*before, StartContainer(container, attempt)]
        else:
            self._wake(held)


def _containers(pod: Pod, observed: ObservedPod, sandbox: Sandbox, facts: Facts) -> _ContainerPlan:
    course = _ContainerPlan(pod, observed, sandbox, facts)
    initialized = any(container.name in course.here for container in pod.spec.containers)
    for container in pod.spec.init_containers:
        if initialized and not container.sidecar:
            continue  # it succeeded, or the app would not run; its container may have been removed since
        if not course.add(container) and not initialized:
            return course
    for container in (*pod.spec.containers, *pod.spec.ephemeral_containers):
        course.add(container)
    return course


def _leftovers(observed: ObservedPod) -> Iterator[Action]:
    """Garbage collection: old instances of containers, and old sandboxes once they are empty."""
    kept: dict[str, int] = {}
    occupied = set()
    for container in observed.containers:
        kept[container.name] = kept.get(container.name, 0) + 1
        if kept[container.name] > KEPT and container.exited:
            yield RemoveContainer(container.id)
        else:
            occupied.add(container.sandbox)
    for old in observed.sandboxes[1:]:
        if old.ready:
            yield StopSandbox(old.id)
        if old.id not in occupied:
            yield RemoveSandbox(old.id)
