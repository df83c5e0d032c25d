"""Addresses for orders: those that claims name, those from pools, and those that a DHCP server leases."""

import asyncio
import logging
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path

from podwire.dradriver.addressing.addresses import Addresses
from podwire.dradriver.addressing.keeper import DhcpKeeper, News, What
from podwire.dradriver.addressing.keys import Key, key_of
from podwire.dradriver.addressing.leases import Place
from podwire.dradriver.attaching.attachments import Attachments
from podwire.dradriver.attaching.records import Record
from podwire.dradriver.events import LEASE_LOST, LEASE_REGAINED, Recorder
from podwire.dradriver.offers import Order
from podwire.dradriver.settings import WHOLE, Interface, Route
from podwire.protocols.dhcp.leases import Lease
from podwire.protocols.k8sapi.client_side.recorder import NORMAL, WARNING

_log = logging.getLogger("podwire.dradriver")

LINK_SCOPE = 253
LEAST_METRIC, METRICS = 1024, 2**20
"""Of leased routes."""
_ON_THE_SAME_NETWORK = ("macvlan", "ipvlan", "veth")
"""Kinds of interfaces whose server can be told over their device that the lease is over, when they are no more."""
_TOLD = {What.LOST: (WARNING, LEASE_LOST), What.REGAINED: (NORMAL, LEASE_REGAINED)}


class Leasing:
    """Implements ports.Addressing."""

    def __init__(self, addresses: Addresses, attachments: Attachments, events: Recorder, leases: Path) -> None:
        self._addresses, self._attachments, self._events = addresses, attachments, events
        self._keeper = DhcpKeeper(leases, self._heard)

    async def run(self) -> None:
        """Keep leases until cancelled."""
        await self._keeper.run()

    async def reserve(self, orders: Sequence[Order]) -> dict[Key, tuple[Interface, ...]]:
        """By order; one of which nothing is said keeps what its device has. Raises Refused, Exhausted, OSError."""
        return await asyncio.to_thread(self._reserved, orders)

    def _reserved(self, orders: Sequence[Order]) -> dict[Key, tuple[Interface, ...]]:
        found = {}
        for each in orders:
            settings = each.settings
            if settings.addresses or settings.pool:
                wanted = settings.addresses or ()
                found[key_of(each)] = self._addresses.reserve(key_of(each), pool=settings.pool, wanted=wanted)
            elif settings.addresses is not None:
                found[key_of(each)] = ()
        return found

    async def lease(self, claim_uid: str) -> None:
        """What a prepared claim is to have from DHCP servers, for all its devices at once. Raises NoLease, OSError."""
        wanted = await asyncio.to_thread(self._attachments.of_claim, claim_uid)
        await asyncio.gather(*(self._lease(each) for each in wanted if each.order.settings.dhcp))

    async def _lease(self, record: Record) -> None:
        order = record.order
        link = order.offered.link if order.settings.made.kind == WHOLE else record.waiting_name
        parent = order.offered.link if order.settings.made.kind in _ON_THE_SAME_NETWORK else ""
        lease = await self._keeper.acquire(
            record.key, link=link, mac=record.mac, parent=parent, hostname=order.pod.name
        )
        if record.addresses != (lease.address,):
            await asyncio.to_thread(self._attachments.assign, record, (lease.address,), routes_of(lease, record.key))

    async def moved(self, pod_uid: str) -> None:
        """A pod's devices are in it, or on the host again: leases are renewed where their interfaces are."""
        for each in await asyncio.to_thread(self._attachments.of_pod, pod_uid):
            if each.order.settings.dhcp:
                place = Place(netns=each.netns, name=each.order.settings.name) if each.netns else None
                await self._keeper.place(each.key, place)

    async def leave(self, claim_uid: str) -> None:
        """Give leases back, while there is an interface to say so with."""
        await self._keeper.release(claim_uid)

    async def release(self, claim_uid: str) -> None:
        """Raises OSError."""
        await asyncio.to_thread(self._addresses.release, claim_uid)

    async def sweep(self, live: Collection[str]) -> None:
        """Free what belongs to no claim that is prepared. Raises OSError."""
        for each in await asyncio.to_thread(self._addresses.gc, live):
            _log.info("addresses of a claim that is gone are free", extra={"claim": f"{each.namespace}/{each.name}"})
        await self._keeper.gc(live)

    def _heard(self, news: News) -> None:
        if news.what not in _TOLD:
            return
        type_, reason = _TOLD[news.what]
        message = f"{news.key.device}: {news.lease.address.ip}, leased by {news.lease.server}"
        self._events.tell([news.key.claim], type_, reason, f"{message}: {news.reason}" if news.reason else message)


def routes_of(lease: Lease, key: Key) -> tuple[Route, ...]:
    """They come after the pod's own, whose way out stays what it is; each interface has a metric for its routes, as two
    servers may both tell a way out."""
    metric = LEAST_METRIC + zlib.crc32(key.id.encode()) % METRICS
    return tuple(
        Route(
            destination=each.destination,
            gateway=each.gateway,
            scope=LINK_SCOPE if each.gateway is None else 0,
            metric=metric,
        )
        for each in lease.routes
    )
