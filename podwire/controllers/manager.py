"""Runs controllers on one feed."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Network, IPv6Network

from podwire.controllers.context import Context, Controller, Signer, TokenSigner
from podwire.controllers.garbage_collector import Collector
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import DEFINITIONS, KnownKinds
from podwire.controllers.leader_election import Election, LeaderElector
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.ports import Absent, Complete, Feed, FeedEvent, Present
from podwire.controllers.registry import ALL, KEY_OPTIONS, REGISTRATIONS, Registration, usable
from podwire.controllers.taint_eviction import Evictions
from podwire.interfaces import Clock
from podwire.objects.pod_networks import PodNetwork
from podwire.protocols.k8sapi.client_side import Client

log = logging.getLogger(__name__)


async def run(
    api: Client,
    feed: Feed,
    clock: Clock,
    *,
    root_ca: str,
    limits: Limits = DEFAULT,
    names: Iterable[str] = ALL,
    election: Election | None = None,
    signer: Signer | None = None,
    token_signer: TokenSigner | None = None,
    balancer_pool: Sequence[IPv4Network | IPv6Network] = (),
    pod_networks: Sequence[PodNetwork] = (),
) -> None:
    """Runs the controllers of these names until cancelled; if one part fails, all stop.

    With an election, those of each lease start when this process holds it. They then receive everything that exists.
    LostLease stops all. Controllers without the key that they need do not run; a log line names them.
    """
    names = usable(names, pool=bool(balancer_pool), pods=bool(pod_networks))
    context = Context(
        api=api,
        graph=Graph(),
        kinds=KnownKinds(api),
        clock=clock,
        root_ca=root_ca,
        limits=limits,
        signer=signer,
        token_signer=token_signer,
        balancer_pool=balancer_pool,
        pod_networks=pod_networks,
    )
    wanted = _with_their_keys([row for row in REGISTRATIONS if row.name in set(names)], context)
    whole = frozenset(resource_of(kind) for registration in wanted for kind in registration.whole)
    dispatcher = Dispatcher(context.graph, context.kinds, limits)
    leases = dict.fromkeys(registration.lease if election is not None else "" for registration in wanted)
    async with asyncio.TaskGroup() as parts:
        parts.create_task(feed.follow(dispatcher.notify, whole), name="feed")
        for lease in leases:
            group = [registration for registration in wanted if election is None or registration.lease == lease]
            start = partial(_start, parts, dispatcher, context, group)
            if lease and election is not None:
                elector = LeaderElector(api, clock, replace(election, name=lease))
                parts.create_task(_lead(elector, start), name=lease)
            else:
                start()


def _with_their_keys(registrations: Sequence[Registration], context: Context) -> list[Registration]:
    """Returns the controllers that have the keys which they need."""
    keys = {"signer": context.signer, "token_signer": context.token_signer}
    for key, options in KEY_OPTIONS.items():
        off = [row.name for row in registrations if row.needs == key and keys[key] is None]
        if off:
            log.warning("controllers are off without a key", extra={"controllers": ", ".join(off), "options": options})
    return [row for row in registrations if not row.needs or keys[row.needs] is not None]


async def _lead(elector: LeaderElector, start: Callable[[], None]) -> None:
    """Calls `start` when the lease is ours, and renews it. Raises LostLease."""
    try:
        await elector.acquire()
        start()
        await elector.hold()
    finally:
        await elector.release()


def _start(
    parts: asyncio.TaskGroup, dispatcher: "Dispatcher", context: Context, registrations: Iterable[Registration]
) -> None:
    controllers: list[Controller] = []
    for registration in registrations:
        controller = registration.create(context)
        if isinstance(controller, Evictions):  # first of those that report taints
            context = replace(context, tainted=controller.tainted)
        controllers.append(controller)
        parts.create_task(controller.run(), name=type(controller).__name__)
    dispatcher.add(controllers)


@dataclass(slots=True)
class Dispatcher:
    """Updates the graph, then calls the controllers that the resource concerns."""

    graph: Graph
    kinds: KnownKinds
    limits: Limits
    controllers: list[Controller] = field(default_factory=list)
    collector: Collector | None = None
    concerned: dict[tuple[str, str], Sequence[Controller]] = field(default_factory=dict)
    """The controllers of each resource that was met."""

    def add(self, controllers: Sequence[Controller]) -> None:
        """Adds controllers, and tells them of everything that exists."""
        self.controllers += controllers
        self.collector = next((row for row in self.controllers if isinstance(row, Collector)), None)
        self.concerned.clear()
        resources = [(controller, controller.resources) for controller in controllers]
        for seen in self.graph.nodes():
            for controller, concerned in resources:
                if concerned is None or seen.resource in concerned:
                    controller.on_change(None, seen)
        if self.graph.complete:
            for controller in controllers:
                controller.on_synced()

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
