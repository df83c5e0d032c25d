"""Decides what a pod needs next from what it wants and what the runtime has. Pure; `worker.py` acts.

Looked at again after every deed, so a plan may stop at the first thing that others have to wait for.
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
)
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod, Sandbox
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb

KEPT = 2
"""Of each container the present one and the one before: `kubectl logs --previous` and lastState show that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A probe says that a running container must be killed."""

    message: str
    grace: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known beside the pod and the runtime's side of it. Times are monotonic."""

    now: float = 0.0
    sandbox_held: float = 0.0
    """No new sandbox before this time."""
    volumes_held: float = 0.0
    """No new start of any container before this time: the pod's volumes could not be set up."""
    held: Mapping[str, float] = field(default_factory=dict)
    """No new start of the container of this name before this time."""
    started: frozenset[str] = frozenset()
    """Ids of running containers whose startup probe, if they have one, has succeeded."""
    unhealthy: Mapping[str, Trouble] = field(default_factory=dict)
    """By container id."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """By container name: what a container must have been made from."""
    deadline: float | None = None
    """When activeDeadlineSeconds is over."""


def plan(pod: Pod, observed: ObservedPod, facts: Facts) -> Plan:
    """The next deeds for a pod that is not being deleted."""
    if outcome(pod, observed) is not None or (facts.deadline is not None and facts.now >= facts.deadline):
        return Plan(tuple(_ended(observed)))
    sandbox = observed.sandbox
    if sandbox is None or not sandbox.ready:
        return _sandbox(sandbox, observed, facts)
    kills, starts, wake_at = _containers(pod, observed, sandbox, facts)
    times = [each for each in (wake_at, facts.deadline) if each is not None]
    return Plan((*kills, *starts, *_leftovers(observed)), min(times, default=None))


def outcome(pod: Pod, observed: ObservedPod) -> str | None:
    """Succeeded or Failed once nothing of the pod will run again, else None."""
    if pod.finished:
        return pod.status.phase
    spec = pod.spec
    if spec.restart_policy == "Always":
        return None
    if spec.restart_policy == "Never" and _failed_init(pod, observed):
        return "Failed"
    codes = []
    for each in spec.containers:
        seen = observed.latest(each.name)
        if seen is None or not seen.exited or restarts(pod, each, seen):
            return None
        codes.append(seen.exit_code)
    return "Failed" if any(codes) else "Succeeded"


def restarts(pod: Pod, container: Container, seen: ObservedContainer) -> bool:
    """Whether a container that exited starts again."""
    if container in pod.spec.ephemeral_containers:
        return False
    if container.sidecar:
        return True
    policy = pod.spec.restart_policy
    if container in pod.spec.init_containers and policy == "Always":
        policy = "OnFailure"
    return policy == "Always" or (policy == "OnFailure" and seen.exit_code != 0)


def told_restarts(pod: Pod, name: str) -> int:
    """The number of a container that the runtime knows nothing of: after the last that the API was told of."""
    for each in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if each.get("name") == name:
            return int(each.get("restartCount", 0)) + (1 if each.get("containerID") else 0)
    return 0


def _failed_init(pod: Pod, observed: ObservedPod) -> bool:
    for each in pod.spec.init_containers:
        seen = observed.latest(each.name)
        if not each.sidecar and seen is not None and seen.exited and seen.exit_code != 0:
            return True
    return False


def _ended(observed: ObservedPod) -> Iterator[Action]:
    """Sidecars have nobody left to serve; then the network goes. Containers stay to be looked at."""
    if observed.running:
        yield EndContainers(observed.running)
    for sandbox in observed.sandboxes:
        if sandbox.ready:
            yield StopSandbox(sandbox.id)


def _sandbox(old: Sandbox | None, observed: ObservedPod, facts: Facts) -> Plan:
    """A new one; of those that failed before it none piles up."""
    times = [each for each in (facts.sandbox_held, facts.deadline) if each is not None]
    if facts.now < facts.sandbox_held:
        return Plan(wake_at=min(times))
    if old is None:
        return Plan((RunSandbox(0),))
    return Plan((StopSandbox(old.id), *_leftovers(observed), RunSandbox(old.attempt + 1)))


class _Course:
    """Collects the deeds for containers, one after the other."""

    def __init__(self, pod: Pod, observed: ObservedPod, sandbox: Sandbox, facts: Facts) -> None:
        self.pod = pod
        self.observed = observed
        self.facts = facts
        self.here = {each.name: each for each in reversed(observed.containers) if each.sandbox == sandbox.id}
        self.kills: list[Action] = []
        self.starts: list[Action] = []
        self.wake_at: float | None = None

    def attend(self, container: Container) -> bool:
        """See to one container; whether those after it may go on."""
        seen = self.here.get(container.name)
        if seen is None:
            self._first(container)
            return False
        if seen.running:
            return self._running(container, seen)
        if seen.state == pb.CONTAINER_CREATED:
            # It could not be started, or whoever made it died before; what it was made with may have changed since.
            self._start(container, seen.attempt, RemoveContainer(seen.id))
            return False
        if not restarts(self.pod, container, seen):
            return True
        self._start(container, seen.attempt + 1)
        return False

    def _first(self, container: Container) -> None:
        """The first in this sandbox; in an earlier one it may have run, and even finished."""
        before = self.observed.latest(container.name)
        if before is None:
            self._start(container, told_restarts(self.pod, container.name))
        elif container in self.pod.spec.init_containers or restarts(self.pod, container, before):
            self._start(container, before.attempt + 1)

    def _running(self, container: Container, seen: ObservedContainer) -> bool:
        trouble = self.facts.unhealthy.get(seen.id)
        if trouble is not None:
            again = f"{trouble.message}, will be restarted"
            why = again if restarts(self.pod, container, replace(seen, exit_code=1)) else trouble.message
            self.kills.append(KillContainer(container, seen, why, trouble.grace))
        elif seen.hash and self.facts.hashes.get(container.name, seen.hash) != seen.hash:
            # Whatever the restart policy says of ends: this one is replaced.
            why = f"Container {container.name} definition changed, will be restarted"
            self.kills.append(KillContainer(container, seen, why))
            self.starts.append(StartContainer(container, seen.attempt + 1))
        plain = container in self.pod.spec.init_containers and not container.sidecar
        return not plain and seen.id in self.facts.started

    def _start(self, container: Container, attempt: int, *before: Action) -> None:
        held = max(self.facts.held.get(container.name, 0.0), self.facts.volumes_held)
        if held <= self.facts.now:
            self.starts += [*before, StartContainer(container, attempt)]
        else:
            self.wake_at = held if self.wake_at is None else min(self.wake_at, held)


def _containers(
    pod: Pod, observed: ObservedPod, sandbox: Sandbox, facts: Facts
) -> tuple[list[Action], list[Action], float | None]:
    course = _Course(pod, observed, sandbox, facts)
    initialized = any(each.name in course.here for each in pod.spec.containers)
    for each in pod.spec.init_containers:
        if initialized and not each.sidecar:
            continue  # its container may have been removed since; the app would not run if it had not succeeded
        if not course.attend(each) and not initialized:
            return course.kills, course.starts, course.wake_at
    for each in (*pod.spec.containers, *pod.spec.ephemeral_containers):
        course.attend(each)
    return course.kills, course.starts, course.wake_at


def _leftovers(observed: ObservedPod) -> Iterator[Action]:
    """Dead containers that nobody asks for any more, and dead sandboxes once they are empty."""
    kept: dict[str, int] = {}
    inhabited = set()
    for each in observed.containers:
        kept[each.name] = kept.get(each.name, 0) + 1
        if kept[each.name] > KEPT and each.exited:
            yield RemoveContainer(each.id)
        else:
            inhabited.add(each.sandbox)
    for old in observed.sandboxes[1:]:
        if old.ready:
            yield StopSandbox(old.id)
        if old.id not in inhabited:
            yield RemoveSandbox(old.id)
