"""What a plan may ask for: one value per deed."""

from dataclasses import dataclass

from podwire.kubelet.pods.observed import ObservedContainer
from podwire.objects.containers import Container


@dataclass(frozen=True, slots=True)
class RunSandbox:
    attempt: int


@dataclass(frozen=True, slots=True)
class StopSandbox:
    """It is of no use any more: what runs in it ends, its network goes."""

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
    """End a running container; `why` is told."""

    container: Container
    seen: ObservedContainer
    why: str
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class EndContainers:
    """End all that runs, for good: apps together, then those that serve them."""

    running: tuple[ObservedContainer, ...]


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    id: str


Action = RunSandbox | StopSandbox | RemoveSandbox | StartContainer | KillContainer | EndContainers | RemoveContainer


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, in this order, and when to look again if nothing happens before."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
