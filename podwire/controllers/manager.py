"""Runs all controllers on one feed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from podwire.controllers.crd_cleanup import DefinitionCleanup
from podwire.controllers.device_taint_eviction import DeviceEvictions
from podwire.controllers.event_expiry import EventExpiry
from podwire.controllers.garbage_collector import Collector
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import (
    CLAIMS,
    DEFINITIONS,
    EVENTS,
    NAMESPACES,
    NODES,
    QUOTAS,
    TAINT_RULES,
    KnownKinds,
)
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.namespace_defaults import NamespaceDefaults
from podwire.controllers.namespace_lifecycle import NamespaceLifecycle
from podwire.controllers.node_lifecycle import NodeLife
from podwire.controllers.pod_gc import PodGc
from podwire.controllers.ports import Absent, Complete, Feed, FeedEvent, Present
from podwire.controllers.resource_claims import DeviceClaims
from podwire.controllers.resource_quota import QuotaController
from podwire.controllers.taint_eviction import Evictions
from podwire.interfaces import Clock
from podwire.protocols.k8sapi.client_side import Client

RECONCILED: frozenset[tuple[str, str]] = frozenset(
    resource_of(kind) for kind in (NAMESPACES, DEFINITIONS, EVENTS, NODES, QUOTAS, CLAIMS, TAINT_RULES)
)
"""The kinds on which these controllers act. The API server warns about others that need a controller: a new controller
adds its kind here."""


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


async def run(api: Client, feed: Feed, clock: Clock, *, root_ca: str, limits: Limits = DEFAULT) -> None:
    """Runs until cancelled; if one part fails, all stop."""
    graph, kinds = Graph(), KnownKinds(api)
    collector, evictions = Collector(api, graph, kinds), Evictions(api, graph, clock)
    controllers: list[Controller] = [
        collector,
        NamespaceLifecycle(api, graph, kinds, clock),
        NamespaceDefaults(api, graph, root_ca),
        DefinitionCleanup(api, graph, clock),
        EventExpiry(api, graph, clock, limits.event_ttl),
        NodeLife(api, graph, clock, evictions.tainted, limits),
        evictions,
        PodGc(api, graph, clock, limits),
        DeviceClaims(api, graph, clock),
        DeviceEvictions(api, graph, clock, limits),
        QuotaController(api, graph, kinds, clock, limits),
    ]
    follower = Dispatcher(graph, kinds, collector, controllers, limits)
    async with asyncio.TaskGroup() as parts:
        parts.create_task(feed.follow(follower.notify), name="feed")
        for controller in controllers:
            parts.create_task(controller.run(), name=type(controller).__name__)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Updates the graph, then calls the controllers that the resource concerns."""

    graph: Graph
    kinds: KnownKinds
    collector: Collector
    controllers: Sequence[Controller]
    limits: Limits
    concerned: dict[tuple[str, str], Sequence[Controller]] = field(default_factory=dict)
    """The controllers of each resource that was met."""

    def notify(self, tidings: FeedEvent) -> None:
        match tidings:
            case Complete():
                self.graph.complete = True
                for controller in self.controllers:
                    controller.on_synced()
            case Present(seen):
                self._changed(self.graph.put(seen), seen)
            case Absent(seen, vanished):
                if not vanished:
                    self.collector.on_deleted(seen.uid)
                self._changed(self.graph.drop(seen.uid) or seen, None)

    def _changed(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        resource = latest.resource
        if resource == resource_of(DEFINITIONS):
            self._refresh_kinds()
            asyncio.get_running_loop().call_later(self.limits.kinds_announced_after, self._refresh_kinds)
        concerned = self.concerned.get(resource)
        if concerned is None:
            concerned = self.concerned[resource] = [
                controller
                for controller in self.controllers
                if controller.resources is None or resource in controller.resources
            ]
        for controller in concerned:
            controller.on_change(before, now)

    def _refresh_kinds(self) -> None:
        self.kinds.invalidate()
        self.collector.kinds_changed()
