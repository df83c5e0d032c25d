"""Runs controllers on one feed."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from podwire.controllers.context import Context, Controller
from podwire.controllers.garbage_collector import Collector
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import DEFINITIONS, KnownKinds
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.ports import Absent, Complete, Feed, FeedEvent, Present
from podwire.controllers.registry import ALL, REGISTRATIONS
from podwire.controllers.taint_eviction import Evictions
from podwire.interfaces import Clock
from podwire.protocols.k8sapi.client_side import Client


async def run(
    api: Client, feed: Feed, clock: Clock, *, root_ca: str, limits: Limits = DEFAULT, names: Iterable[str] = ALL
) -> None:
    """Runs the controllers of these names until cancelled; if one part fails, all stop."""
    wanted = set(names)
    context = Context(api=api, graph=Graph(), kinds=KnownKinds(api), clock=clock, root_ca=root_ca, limits=limits)
    controllers: list[Controller] = []
    whole: set[tuple[str, str]] = set()
    for registration in REGISTRATIONS:
        if registration.name in wanted:
            controller = registration.create(context)
            if isinstance(controller, Evictions):  # first of those that report taints
                context = replace(context, tainted=controller.tainted)
            controllers.append(controller)
            whole |= {resource_of(kind) for kind in registration.whole}
    collector = next((controller for controller in controllers if isinstance(controller, Collector)), None)
    dispatcher = Dispatcher(context.graph, context.kinds, collector, controllers, limits)
    async with asyncio.TaskGroup() as parts:
        parts.create_task(feed.follow(dispatcher.notify, frozenset(whole)), name="feed")
        for controller in controllers:
            parts.create_task(controller.run(), name=type(controller).__name__)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Updates the graph, then calls the controllers that the resource concerns."""

    graph: Graph
    kinds: KnownKinds
    collector: Collector | None
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
                if not vanished and self.collector is not None:
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
        if self.collector is not None:
            self.collector.kinds_changed()
