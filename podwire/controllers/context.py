"""All that a controller is handed, and the interface that it implements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import KnownKinds
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject
from podwire.interfaces import Clock
from podwire.objects.nodes import Taint
from podwire.protocols.k8sapi.client_side import Client


def _ignore_taints(_node: str, _taints: Sequence[Taint]) -> None:
    """Nobody evicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    api: Client
    graph: Graph
    """All objects: metadata, and the JSON of the kinds that some controller reads whole."""
    kinds: KnownKinds
    clock: Clock
    root_ca: str = ""
    limits: Limits = DEFAULT
    tainted: Callable[[str, Sequence[Taint]], None] = _ignore_taints
    """Called with the taints of each node."""


class Controller(Protocol):
    @property
    def resources(self) -> frozenset[tuple[str, str]] | None:
        """The resources whose changes it receives; None: all."""
        ...

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        """Called for each change: created (`before` None), updated, or deleted (`now` None); the graph is already
        updated."""
        ...

    def on_synced(self) -> None:
        """Called when all objects are known; again when new kinds were added."""
        ...

    async def run(self) -> None:
        """Runs until cancelled."""
        ...
