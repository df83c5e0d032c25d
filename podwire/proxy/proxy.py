"""The proxy of a node: follows Services and EndpointSlices, and keeps the kernel equal to them.

Nothing is written before both kinds were listed: the table of a proxy that ran before serves until then. A change is
written to the kernel at once, with all that came in the same turn of the event loop, in one transaction. A transaction
that fails is followed by one with everything. Stopping leaves the table as it is.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from podwire.interfaces import Clock
from podwire.linux.errors import LinuxError
from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.values import Network
from podwire.objects.times import parse
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Deleted, Object, Synced
from podwire.protocols.prometheus import Counter, Histograms
from podwire.proxy.announcing import Announcer, Links, Probe
from podwire.proxy.audit import Audit
from podwire.proxy.conntrack import Conntrack, Frontends
from podwire.proxy.health import TO_BE_DELETED, Health, HealthPorts, Listen
from podwire.proxy.kernel import Kernel
from podwire.proxy.metrics import FAMILIES, ProxyMetrics
from podwire.proxy.model import Model, names
from podwire.proxy.program import Settings
from podwire.proxy.topology import Place
from podwire.proxy.values import (
    PROTOCOLS,
    Name,
    Service,
    ServiceObject,
    SliceObject,
    networks,
    read_services,
    read_slices,
)
from podwire.proxy.watches import Follower
from podwire.tasks.backoff import Pauses

_log = logging.getLogger("podwire.proxy")

T = TypeVar("T")

SCTP = PROTOCOLS["SCTP"]
ZONE = "topology.kubernetes.io/zone"
OTHER_PROXY, HEADLESS = "service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"
OURS = Scope(label_selector=f"!{OTHER_PROXY},!{HEADLESS}")
"""Services and slices that other proxies do not claim, and that have an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    audit: float = 2.0
    """Seconds between looks at the table, whether others have changed it."""
    health: float = 5.0
    """Seconds between attempts to listen at health check ports that others have."""
    first_retry: float = 0.1
    longest_retry: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    node: str
    pods: tuple[Network, ...] = ()
    """Addresses of pods; empty: the ranges of this node, as its Node object has them."""
    balancer_pool: tuple[Network, ...] = ()
    """Addresses of load balancers that the nodes announce; empty: others do."""
    bridged: bool = False
    """Bridges of this node do not hand their frames to the rules."""
    sctp: bool = True
    """Whether the kernel follows SCTP connections."""
    limits: Limits = Limits()


class Proxy:
    """`run` works until it is cancelled."""

    def __init__(
        self,
        api: Client,
        clock: Clock,
        kernel: Kernel,
        conntrack: KernelConntrack,
        settings: ProxySettings,
        *,
        listen: Listen,
        links: Links | None = None,
        probe: Probe | None = None,
    ) -> None:
        self._api, self._clock, self._kernel = api, clock, kernel
        self.metrics = ProxyMetrics()
        self.health = Health(clock, self.metrics)
        self._conntrack = Conntrack(conntrack, self.metrics)
        self._health_ports = HealthPorts(listen, self.health)
        self._settings = settings
        self.model = Model(Place(settings.node))
        self._comparison = Audit(kernel, self.model)
        self._announcer = None
        if settings.balancer_pool and links is not None and probe is not None:
            self._announcer = Announcer(api, settings.node, settings.balancer_pool, self.model, links, probe)
        self._rules = Settings(settings.pods, settings.bridged)
        self._wake = asyncio.Event()
        self._waiting = {"services", "endpointslices"}
        self._whole = True
        """Everything must be written, not only what has changed."""
        self.synced = asyncio.Event()
        """Set when the kernel knows everything for the first time."""
        self._contested: list[tuple[Name, Name]] = []

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            await self._health_ports.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._services().run(), name="watch services")
            group.create_task(self._slices().run(), name="watch endpointslices")
            group.create_task(self._follow_node(), name="watch node")
            group.create_task(self._sync_changes(), name="sync")
            group.create_task(self._audit(), name="audit")
            group.create_task(self._health_ports.keep_trying(self._settings.limits.health), name="health ports")
            if self._announcer is not None:
                group.create_task(self._announce(self._announcer), name="announce")

    async def _announce(self, announcer: Announcer) -> None:
        """Begins when all Services are known: addresses of a proxy before stay until then."""
        await self.synced.wait()
        await announcer.run()

    def _services(self) -> Follower[ServiceObject]:
        model = self.model
        return Follower(
            self._api,
            _kind("v1", "Service"),
            OURS,
            read_services,
            ServiceObject,
            put=lambda item: self._changed(
                self.metrics.service_changes, model.put_service, item.key, self._served(item)
            ),
            delete=lambda key: self._changed(self.metrics.service_changes, model.put_service, key, None),
            known=model.services.keys,
            listed=lambda: self._listed("services"),
        )

    def _served(self, item: ServiceObject) -> Service | None:
        """Returns the part of a Service that this kernel can serve."""
        service = item.reduced()
        if service is None or self._settings.sctp or all(port.protocol != SCTP for port in service.ports):
            return service
        _log.warning(
            "ports of SCTP are not served: the kernel does not follow them", extra={"service": names([item.key])}
        )
        return service._replace(ports=tuple(port for port in service.ports if port.protocol != SCTP))

    def _slices(self) -> Follower[SliceObject]:
        model = self.model
        return Follower(
            self._api,
            _kind("discovery.k8s.io/v1", "EndpointSlice"),
            OURS,
            read_slices,
            SliceObject,
            put=lambda item: self._changed(self.metrics.endpoint_changes, model.put_slice, item.key, item.reduced()),
            delete=lambda key: self._changed(self.metrics.endpoint_changes, model.put_slice, key, None),
            known=model.slices.keys,
            listed=lambda: self._listed("endpointslices"),
        )

    def _changed(self, count: Counter, put: Callable[[Name, T | None], None], key: Name, value: T | None) -> None:
        count.inc()
        put(key, value)
        if self.model.is_dirty and not self._waiting:
            self._queue()

    def _queue(self) -> None:
        if not self._wake.is_set():
            self.health.queued()
            self.metrics.queued.set(self._clock.wall(), FAMILIES)
            self._wake.set()

    def _listed(self, kind: str) -> None:
        self._waiting.discard(kind)
        if not self._waiting:
            self._queue()

    async def _follow_node(self) -> None:
        """The node's zone and pod ranges decide; a Node that does not exist yet has neither."""
        scope = Scope(field_selector=f"metadata.name={self._settings.node}")
        async with self._api.informer(_kind("v1", "Node"), scope) as informer:
            async for change in informer:
                if not isinstance(change, Synced):
                    self._on_node({} if isinstance(change, Deleted) else change.object)

    def _on_node(self, node: Object) -> None:
        meta, taints = node.get("metadata") or {}, (node.get("spec") or {}).get("taints") or ()
        is_leaving = "deletionTimestamp" in meta or any(taint.get("key") == TO_BE_DELETED for taint in taints)
        self.health.eligible = bool(node) and not is_leaving
        zone = ((node.get("metadata") or {}).get("labels") or {}).get(ZONE, "")
        pods = self._settings.pods or networks((node.get("spec") or {}).get("podCIDRs") or ())
        place, rules = Place(self._settings.node, zone), self._rules._replace(pods=pods)
        if (place, rules) != (self.model.place, self._rules):
            self.model.place, self._rules, self._whole = place, rules, True
            self._queue()

    async def _sync_changes(self) -> None:
        limits = self._settings.limits
        pauses = Pauses(limits.first_retry, limits.longest_retry)
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._waiting:
                continue
            try:
                self._sync()
                await self._health_ports.sync(self.model.health_ports())
                if self._announcer is not None:
                    self._announcer.wake()
                pauses.reset()
            except LinuxError as error:
                self.metrics.failures.inc(FAMILIES)
                _log.error("cannot change the rules of Services", extra={"error": str(error)})
                self._whole = True
                self._wake.set()
                await asyncio.sleep(pauses.next())

    def _sync(self) -> None:
        """One transaction with what has changed, or with everything. Raises LinuxError."""
        began = self._clock.monotonic()
        model = self.model
        gone: Frontends = {}
        if not self._whole:
            difference = model.difference()
            try:
                self._kernel.change(difference.deleted, difference.added)
            except LinuxError as error:
                _log.warning("cannot change some rules, and replaces all", extra={"error": str(error)})
                self.metrics.failures.inc(FAMILIES)
                gone, self._whole = difference.datagrams, True
            else:
                self._conntrack.forget(difference.datagrams)
                self._observe(began, self.metrics.partial, difference.changed)
        if self._whole:
            count = self._kernel.replace(model.everything(), self._rules)
            self._whole = False
            self._comparison.reset()
            self._conntrack.forget({**gone, **model.datagrams})
            seconds = round(self._clock.monotonic() - began, 3)
            extra = {"services": len(model.services), "elements": count, "seconds": seconds}
            _log.info("rules of all Services were replaced", extra=extra)
            self._observe(began, self.metrics.full, ())
        self.synced.set()
        self._warn_contested()

    def _observe(self, began: float, kind: Histograms, changed: Iterable[str]) -> None:
        """Counts a sync; `changed` are the times of the changes that it is about."""
        seconds, now = self._clock.monotonic() - began, self._clock.wall()
        self.health.updated()
        self.metrics.sync.observe(seconds, FAMILIES)
        kind.observe(seconds, FAMILIES)
        self.metrics.last.set(now, FAMILIES)
        for time in changed:
            with contextlib.suppress(ValueError):
                self.metrics.programming.observe(max(0.0, now - parse(time)), FAMILIES)
        for index, policy in enumerate(("internal", "external")):
            missing = sum(flags[index] for flags in self.model.no_local.values())
            self.metrics.no_local.set(missing, FAMILIES, policy)

    def _warn_contested(self) -> None:
        contested = self.model.contested()
        for has, wants in contested:
            if (has, wants) not in self._contested:
                _log.warning(
                    "address or node port belongs to another Service",
                    extra={"service": names([wants]), "owner": names([has])},
                )
        self._contested = contested

    async def _audit(self) -> None:
        """Puts the table again when others changed it, and deletes chains that nobody uses any more."""
        while True:
            await asyncio.sleep(self._settings.limits.audit)
            if not self.synced.is_set() or self._wake.is_set():
                continue
            try:
                if self._comparison.look():
                    if self._kernel.has_unused:
                        self._kernel.delete_unused()
                    continue
                _log.warning("rules of Services were changed by others", extra={"table": "inet podwire-proxy"})
                self._whole = True
                self._queue()
            except LinuxError as error:
                _log.warning("cannot read the rules of Services", extra={"error": str(error)})


def _kind(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(kind)
    return found
