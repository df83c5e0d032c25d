"""Actions of a plan, as values. Pure."""

from dataclasses import dataclass

from podwire.kubelet.pods.observed import ObservedContainer
from podwire.objects.containers import Container


@dataclass(frozen=True, slots=True)
class RunSandbox:
    attempt: int


@dataclass(frozen=True, slots=True)
class StopSandbox:
    """Kills its containers and removes its network."""

    id: str


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    id: str


@dataclass(frozen=True, slots=True)
class StartContainer:
    container: Container
    attempt: int


@dataclass(frozen=True, slots=True)
class KillContainer:
    """Kill a running container; `message` is for the event."""

    container: Container
    running: ObservedContainer
    message: str
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class UpdateContainer:
    """Tell the runtime the new resources of a container that goes on running."""

    container: Container
    running: ObservedContainer


@dataclass(frozen=True, slots=True)
class EndContainers:
    """Kill all running containers for good: apps together, then sidecars."""

    running: tuple[ObservedContainer, ...]


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    id: str


Action = (
    RunSandbox
    | StopSandbox
    | RemoveSandbox
    | StartContainer
    | KillContainer
    | UpdateContainer
    | EndContainers
    | RemoveContainer
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in their order, and the time of the next look unless an event comes earlier."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
