"""Runs all controllers on one feed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podwire.controllers.crd_cleanup import DefinitionCleanup
from podwire.controllers.device_taint_eviction import DeviceEvictions
from podwire.controllers.event_expiry import TTL, EventExpiry
from podwire.controllers.garbage_collector import Collector
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import DEFINITIONS, KnownKinds
from podwire.controllers.metadata import Seen, resource_of
from podwire.controllers.namespace_defaults import NamespaceDefaults
from podwire.controllers.namespace_lifecycle import NamespaceLifecycle
from podwire.controllers.node_lifecycle import NodeLife
from podwire.controllers.pod_gc import PodGc
from podwire.controllers.ports import Absent, Api, Complete, Feed, Present, Tidings
from podwire.controllers.resource_claims import DeviceClaims
from podwire.controllers.taint_eviction import Evictions
from podwire.interfaces import Clock

ANNOUNCED_AFTER = 1.0
"""A server announces a new kind at the latest so long after its definition says that it is served."""


class Controller(Protocol):
    def saw(self, before: Seen | None, now: Seen | None) -> None:
        """An object came (before None), changed, or went (now None); the graph knows already."""
        ...

    def completed(self) -> None:
        """Everything that was there was told; again when kinds have come that were not followed before."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...


async def run(api: Api, feed: Feed, clock: Clock, *, root_ca: str, event_ttl: float = TTL) -> None:
    """Work until cancelled; if one part fails, all stop."""
    graph, kinds = Graph(), KnownKinds(api)
    collector, evictions = Collector(api, graph, kinds), Evictions(api, graph, clock)
    controllers: list[Controller] = [
        collector,
        NamespaceLifecycle(api, graph, kinds, clock),
        NamespaceDefaults(api, graph, root_ca),
        DefinitionCleanup(api, graph, clock),
        EventExpiry(api, graph, clock, event_ttl),
        NodeLife(api, graph, clock, evictions.tainted),
        evictions,
        PodGc(api, graph, clock),
        DeviceClaims(api, graph, clock),
        DeviceEvictions(api, graph, clock),
    ]
    follower = _Follower(graph, kinds, collector, controllers)
    async with asyncio.TaskGroup() as parts:
        parts.create_task(feed.follow(follower.tell), name="feed")
        for each in controllers:
            parts.create_task(each.run(), name=type(each).__name__)


@dataclass(frozen=True, slots=True)
class _Follower:
    """Keeps the graph, then lets the controllers know."""

    graph: Graph
    kinds: KnownKinds
    collector: Collector
    controllers: Sequence[Controller]

    def tell(self, tidings: Tidings) -> None:
        match tidings:
            case Complete():
                self.graph.complete = True
                for each in self.controllers:
                    each.completed()
            case Present(seen):
                self._changed(self.graph.put(seen), seen)
            case Absent(seen, vanished):
                if not vanished:
                    self.collector.ended(seen.uid)
                self._changed(self.graph.drop(seen.uid) or seen, None)

    def _changed(self, before: Seen | None, now: Seen | None) -> None:
        latest = now or before
        if latest is not None and latest.resource == resource_of(DEFINITIONS):
            self._look_for_kinds()
            asyncio.get_running_loop().call_later(ANNOUNCED_AFTER, self._look_for_kinds)
        for each in self.controllers:
            each.saw(before, now)

    def _look_for_kinds(self) -> None:
        self.kinds.stale()
        self.collector.kinds_changed()
