"""The proxy of a node: follows Services and EndpointSlices, and keeps the kernel equal to them.

Nothing is written before both kinds were listed: the table of a proxy that ran before serves until then. A change is
told to the kernel at once, with all that came in the same turn of the event loop, in one transaction. A transaction
that fails is followed by one with everything. Stopping leaves the table as it is.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.linux.errors import LinuxError
from podwire.linux.values import Network
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Deleted, Object, Synced
from podwire.proxy.conntrack import Conntrack
from podwire.proxy.kernel import Kernel
from podwire.proxy.model import Model, names
from podwire.proxy.program import Settings
from podwire.proxy.topology import Place
from podwire.proxy.values import Name, ServiceObject, SliceObject, networks, read_services, read_slices
from podwire.proxy.watches import Follower
from podwire.tasks.backoff import Pauses

_log = logging.getLogger("podwire.proxy")

ZONE = "topology.kubernetes.io/zone"
OTHER_PROXY, HEADLESS = "service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"
OURS = Scope(label_selector=f"!{OTHER_PROXY},!{HEADLESS}")
"""Services and slices that other proxies do not claim, and that have an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    audit: float = 2.0
    """Seconds between looks at the table, whether others have changed it."""
    first_retry: float = 0.1
    longest_retry: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    node: str
    pods: tuple[Network, ...] = ()
    """Addresses of pods; empty: the ranges of this node, as its Node object has them."""
    bridged: bool = False
    """Bridges of this node do not hand their frames to the rules."""
    limits: Limits = Limits()


class Proxy:
    """`run` works until it is cancelled."""

    def __init__(
        self, api: Client, clock: Clock, kernel: Kernel, conntrack: Conntrack, settings: ProxySettings
    ) -> None:
        self._api, self._clock, self._kernel, self._conntrack = api, clock, kernel, conntrack
        self._settings = settings
        self.model = Model(Place(settings.node))
        self._rules = Settings(settings.pods, settings.bridged)
        self._wake = asyncio.Event()
        self._waiting = {"services", "endpointslices"}
        self._whole = True
        """Everything must be told, not only what has changed."""
        self.synced = asyncio.Event()
        """Set when the kernel knows everything for the first time."""
        self._contested: list[tuple[Name, Name]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._services().run(), name="watch services")
            group.create_task(self._slices().run(), name="watch endpointslices")
            group.create_task(self._follow_node(), name="watch node")
            group.create_task(self._sync_changes(), name="sync")
            group.create_task(self._audit(), name="audit")

    def _services(self) -> Follower[ServiceObject]:
        model = self.model
        return Follower(
            self._api,
            _kind("v1", "Service"),
            OURS,
            read_services,
            ServiceObject,
            put=lambda item: self._changed(lambda: model.put_service(item.key, item.reduced())),
            delete=lambda key: self._changed(lambda: model.put_service(key, None)),
            known=model.services.keys,
            listed=lambda: self._listed("services"),
        )

    def _slices(self) -> Follower[SliceObject]:
        model = self.model
        return Follower(
            self._api,
            _kind("discovery.k8s.io/v1", "EndpointSlice"),
            OURS,
            read_slices,
            SliceObject,
            put=lambda item: self._changed(lambda: model.put_slice(item.key, item.reduced())),
            delete=lambda key: self._changed(lambda: model.put_slice(key, None)),
            known=model.slices.keys,
            listed=lambda: self._listed("endpointslices"),
        )

    def _changed(self, change: Callable[[], None]) -> None:
        change()
        if self.model.is_dirty and not self._waiting:
            self._wake.set()

    def _listed(self, kind: str) -> None:
        self._waiting.discard(kind)
        if not self._waiting:
            self._wake.set()

    async def _follow_node(self) -> None:
        """The node's zone and pod ranges decide; a Node that does not exist yet has neither."""
        scope = Scope(field_selector=f"metadata.name={self._settings.node}")
        async with self._api.informer(_kind("v1", "Node"), scope) as informer:
            async for change in informer:
                if not isinstance(change, Synced):
                    self._on_node({} if isinstance(change, Deleted) else change.object)

    def _on_node(self, node: Object) -> None:
        zone = ((node.get("metadata") or {}).get("labels") or {}).get(ZONE, "")
        pods = self._settings.pods or networks((node.get("spec") or {}).get("podCIDRs") or ())
        place, rules = Place(self._settings.node, zone), self._rules._replace(pods=pods)
        if (place, rules) != (self.model.place, self._rules):
            self.model.place, self._rules, self._whole = place, rules, True
            self._wake.set()

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
                pauses.reset()
            except LinuxError as error:
                _log.error("cannot change the rules of Services", extra={"error": str(error)})
                self._whole = True
                self._wake.set()
                await asyncio.sleep(pauses.next())

    def _sync(self) -> None:
        """One transaction with what has changed, or with everything. Raises LinuxError."""
        began = self._clock.monotonic()
        model = self.model
        if not self._whole:
            difference = model.difference()
            try:
                self._kernel.change(difference.deleted, difference.added)
            except LinuxError as error:
                _log.warning("cannot change some rules, and replaces all", extra={"error": str(error)})
                self._whole = True
            else:
                self._conntrack.forget(difference.datagrams)
        if self._whole:
            count = self._kernel.replace(model.everything(), self._rules)
            self._whole = False
            seconds = round(self._clock.monotonic() - began, 3)
            extra = {"services": len(model.services), "elements": count, "seconds": seconds}
            _log.info("rules of all Services were replaced", extra=extra)
        self.synced.set()
        self._warn_contested()

    def _warn_contested(self) -> None:
        contested = self.model.contested()
        for has, wants in contested:
            if (has, wants) not in self._contested:
                _log.warning(
                    "external address belongs to another Service",
                    extra={"service": names([wants]), "owner": names([has])},
                )
        self._contested = contested

    async def _audit(self) -> None:
        """Puts the table again when others flushed it, and deletes chains that nobody uses any more."""
        while True:
            await asyncio.sleep(self._settings.limits.audit)
            if not self.synced.is_set() or self._wake.is_set():
                continue
            try:
                if self._kernel.is_intact(self._sample()):
                    continue
                _log.warning("rules of Services were changed by others", extra={"table": "inet podwire-proxy"})
                self._whole = True
                self._wake.set()
            except LinuxError as error:
                _log.warning("cannot read the rules of Services", extra={"error": str(error)})

    def _sample(self) -> Iterable[tuple[tuple[str, bytes], bytes | str]]:
        """Some elements that must be there: those of the first Service and of the last."""
        known = self.model.services
        for name in {*itertools.islice(known, 1), *itertools.islice(reversed(known), 1)}:
            yield from list(self.model.plan_of(name).elements.items())[:8]


def _kind(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(kind)
    return found
