"""Addresses of claimed interfaces: those that claims name, those from pools, and DHCP leases."""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from podwire.dradriver.addresses.address_store import AddressStore
from podwire.dradriver.addresses.assignments import Assignment, entry_of
from podwire.dradriver.addresses.keys import Key, key_of
from podwire.dradriver.addresses.lease_manager import LeaseManager
from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.attach.records import PREPARED, Record, Terms
from podwire.dradriver.claims.allocations import Allocation
from podwire.dradriver.parameters.settings import WHOLE, Interface, Route
from podwire.ipam.dhcp.client import DhcpClient, Timing
from podwire.ipam.dhcp.lease_keeper import REGAIN, LeaseChange, LeaseEvent
from podwire.ipam.dhcp.lease_records import PodLocation
from podwire.protocols.dhcp.leases import Lease

_log = logging.getLogger("podwire.dradriver")

LINK_SCOPE = 253
LEAST_METRIC, METRICS = 1024, 2**20
"""Metrics of leased routes."""
NO_LEASE = "there is no lease: it has expired, or was never granted"
_ON_THE_SAME_NETWORK = ("macvlan", "ipvlan", "veth")
"""Kinds of interfaces that share the network of their device: a lease can be released through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLimits:
    """Seconds."""

    exchange: Timing = field(default_factory=Timing)
    regain: float = REGAIN
    """Between attempts to get a lost lease again."""


class AddressManager:
    def __init__(
        self,
        addresses: AddressStore,
        attachments: Attachments,
        leases: Path,
        limits: LeaseLimits | None = None,
    ) -> None:
        self._addresses, self._attachments = addresses, attachments
        limits = limits or LeaseLimits()
        client = DhcpClient(limits.exchange)
        self._leases = LeaseManager(leases, self._on_lease_event, client, regain=limits.regain)
        self._lapses: dict[Key, str] = {}
        """Reasons why leases are lost."""
        self._changed: asyncio.Queue[Key] = asyncio.Queue()

    async def run(self) -> None:
        """Renews leases until cancelled. First reports all leases of pods as changed: the previous instance may have
        been killed after it renewed one and before it applied it in the pod."""
        for record in await asyncio.to_thread(self._attachments.records):
            if record.allocation.settings.dhcp and record.addresses is not None:
                self._changed.put_nowait(record.key)
        await self._leases.run()

    async def changes(self) -> AsyncIterator[Key]:
        """Yields the keys of leases that changed or may have; endless, for one reader."""
        while True:
            yield await self._changed.get()

    async def terms(self, key: Key) -> Terms:
        """Returns what is leased at this moment, or why nothing is."""
        lease = await self._leases.lease(key)
        if lease is not None:
            return terms_of(lease, key)
        return Terms(lapse=self._lapses.get(key, NO_LEASE))

    def reserve(self, allocations: Sequence[Allocation]) -> dict[Key, tuple[Interface, ...]]:
        """Reserves what claims name and what pools give; an allocation without either keeps its link's. Blocks.

        Raises Refused, Exhausted, OSError.
        """
        reserved = {}
        for allocation in allocations:
            key, settings = key_of(allocation), allocation.settings
            if settings.addresses or settings.pool:
                named = settings.addresses or ()
                reserved[key] = self._addresses.reserve(key, pool=settings.pool, wanted=named)
            elif settings.addresses is not None:
                reserved[key] = ()
        return reserved

    async def lease(self, claim_uid: str) -> None:
        """Acquires the leases of a prepared claim, for all its devices concurrently. Raises NoLease, OSError."""
        records = await asyncio.to_thread(self._attachments.of_claim, claim_uid)
        await asyncio.gather(*(self._lease(record) for record in records if record.allocation.settings.dhcp))

    async def _lease(self, record: Record) -> None:
        allocation = record.allocation
        link = allocation.device.link if allocation.settings.made.kind == WHOLE else record.waiting_name
        parent = allocation.device.link if allocation.settings.made.kind in _ON_THE_SAME_NETWORK else ""
        lease = await self._leases.acquire(
            record.key, link=link, mac=record.mac, parent=parent, hostname=allocation.pod.name
        )
        self._lapses.pop(record.key, None)
        if record.stage == PREPARED:
            await asyncio.to_thread(self._attachments.apply_terms, record.key, terms_of(lease, record.key))
        else:
            self._changed.put_nowait(record.key)

    async def locate(self, pod_uid: str) -> None:
        """A pod's devices were attached or detached: leases are renewed where their interfaces are."""
        for record in await asyncio.to_thread(self._attachments.of_pod, pod_uid):
            if record.allocation.settings.dhcp:
                name = record.allocation.settings.name
                place = PodLocation(netns=record.netns, name=name) if record.netns else None
                await self._leases.place(record.key, place)

    async def release_leases(self, claim_uid: str) -> None:
        """Releases the leases of a claim, while there is an interface to send from."""
        await self._leases.release_claim(claim_uid)
        self._lapses = {key: reason for key, reason in self._lapses.items() if key.claim.uid != claim_uid}

    async def release(self, claim_uid: str) -> None:
        """Releases all other addresses of a claim. Raises OSError."""
        await asyncio.to_thread(self._addresses.release, claim_uid)

    async def reconcile(self, records: Sequence[Record]) -> None:
        """Releases the addresses of claims without records, and restores those of claims with records. OSError."""
        live = {record.allocation.claim.uid for record in records}
        for released in await asyncio.to_thread(self._addresses.reconcile, live, list(held_in(records))):
            _log.info("released orphaned addresses", extra={"claim": f"{released.namespace}/{released.name}"})
        await self._leases.collect_garbage(live)

    def _on_lease_event(self, event: LeaseEvent[Key]) -> None:
        if event.what is LeaseChange.UNANSWERED:
            return  # it has some time left
        if event.what is LeaseChange.LOST:
            self._lapses[event.key] = f"the lease of {event.lease.address.ip} is lost: {event.reason}"
        else:
            self._lapses.pop(event.key, None)
        self._changed.put_nowait(event.key)


def held_in(records: Iterable[Record]) -> Iterator[Assignment]:
    """Yields what `reserve` returned for the claims of these records."""
    for record in records:
        settings = record.allocation.settings
        if settings.addresses or settings.pool:
            named = tuple(map(str, settings.addresses or ()))
            given = tuple(map(str, record.addresses or ()))[len(named) :]
            yield entry_of(record.key, pool=settings.pool, wanted=named, given=given)


def terms_of(lease: Lease, key: Key) -> Terms:
    return Terms(addresses=(lease.address,), routes=routes_of(lease, key), mtu=lease.mtu)


def routes_of(lease: Lease, key: Key) -> tuple[Route, ...]:
    """Leased routes have high metrics, so that the pod's default route stays the default; each interface has its own
    metric, because two servers may both announce a default route."""
    metric = LEAST_METRIC + zlib.crc32(key.id.encode()) % METRICS
    return tuple(
        Route(
            destination=route.destination,
            gateway=route.gateway,
            scope=LINK_SCOPE if route.gateway is None else 0,
            metric=metric,
        )
        for route in lease.routes
    )
