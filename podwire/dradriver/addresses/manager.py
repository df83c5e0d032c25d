"""Addresses for orders: those that claims name, those from pools, and those that a DHCP server leases."""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

from podwire.dradriver import ports
from podwire.dradriver.addresses.address_store import Addresses
from podwire.dradriver.addresses.assignments import Held, entry_of
from podwire.dradriver.addresses.keys import Key, key_of
from podwire.dradriver.addresses.lease_manager import DhcpKeeper, News, What
from podwire.dradriver.addresses.lease_records import Place
from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.attach.records import PREPARED, Record, Terms
from podwire.dradriver.claims.allocations import Order
from podwire.dradriver.parameters.settings import WHOLE, Interface, Route
from podwire.protocols.dhcp.leases import Lease

_log = logging.getLogger("podwire.dradriver")

LINK_SCOPE = 253
LEAST_METRIC, METRICS = 1024, 2**20
"""Of leased routes."""
NO_LEASE = "there is no lease: it has ended, or was never granted"
_ON_THE_SAME_NETWORK = ("macvlan", "ipvlan", "veth")
"""Kinds of interfaces whose server can be told over their device that the lease is over, when they are no more."""


class Leasing:
    """Implements ports.Addressing."""

    def __init__(self, addresses: Addresses, attachments: Attachments, leases: Path) -> None:
        self._addresses, self._attachments = addresses, attachments
        self._keeper = DhcpKeeper(leases, self._heard)
        self._lapses: dict[Key, str] = {}
        """Of leases that are lost: why."""
        self._changed: asyncio.Queue[Key] = asyncio.Queue()

    async def run(self) -> None:
        """Keep leases until cancelled. First it is seen whether pods have what is leased: somebody may have been
        killed between the one and the other."""
        for each in await asyncio.to_thread(self._attachments.records):
            if each.order.settings.dhcp and each.addresses is not None:
                self._changed.put_nowait(each.key)
        await self._keeper.run()

    async def changes(self) -> AsyncIterator[Key]:
        while True:
            yield await self._changed.get()

    async def terms(self, key: Key) -> Terms:
        lease = await self._keeper.lease(key)
        if lease is not None:
            return terms_of(lease, key)
        return Terms(lapse=self._lapses.get(key, NO_LEASE))

    def reserve(self, orders: Sequence[Order]) -> dict[Key, tuple[Interface, ...]]:
        """By order; one of which nothing is said keeps what its device has. Blocks.

        Raises Refused, Exhausted, OSError.
        """
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
        self._lapses.pop(record.key, None)
        if record.stage == PREPARED:
            await asyncio.to_thread(self._attachments.follow, record.key, terms_of(lease, record.key))
        else:
            self._changed.put_nowait(record.key)

    async def moved(self, pod_uid: str) -> None:
        """A pod's devices are in it, or on the host again: leases are renewed where their interfaces are."""
        for each in await asyncio.to_thread(self._attachments.of_pod, pod_uid):
            if each.order.settings.dhcp:
                place = Place(netns=each.netns, name=each.order.settings.name) if each.netns else None
                await self._keeper.place(each.key, place)

    async def leave(self, claim_uid: str) -> None:
        """Give leases back, while there is an interface to say so with."""
        await self._keeper.release(claim_uid)
        self._lapses = {key: why for key, why in self._lapses.items() if key.claim.uid != claim_uid}

    async def release(self, claim_uid: str) -> None:
        """Raises OSError."""
        await asyncio.to_thread(self._addresses.release, claim_uid)

    async def sweep(self, records: Sequence[ports.Record]) -> None:
        """Free what belongs to no claim that is prepared, and hold what belongs to one. Raises OSError, Unreadable."""
        live = {each.order.claim.uid for each in records}
        for each in await asyncio.to_thread(self._addresses.settle, live, list(held_in(records))):
            _log.info("addresses of a claim that is gone are free", extra={"claim": f"{each.namespace}/{each.name}"})
        await self._keeper.gc(live)

    def _heard(self, news: News) -> None:
        if news.what is What.UNANSWERED:
            return  # it has some time left
        if news.what is What.LOST:
            self._lapses[news.key] = f"the lease of {news.lease.address.ip} is lost: {news.reason}"
        else:
            self._lapses.pop(news.key, None)
        self._changed.put_nowait(news.key)


def held_in(records: Iterable[ports.Record]) -> Iterator[Held]:
    """What reserve() gave to those that records tell of."""
    for each in records:
        settings = each.order.settings
        if settings.addresses or settings.pool:
            wanted = tuple(map(str, settings.addresses or ()))
            given = tuple(map(str, each.addresses or ()))[len(wanted) :]
            yield entry_of(key_of(each.order), pool=settings.pool, wanted=wanted, given=given)


def terms_of(lease: Lease, key: Key) -> Terms:
    return Terms(addresses=(lease.address,), routes=routes_of(lease, key), mtu=lease.mtu)


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
