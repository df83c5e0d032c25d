"""Keeps the records of service addresses and node ports consistent with the stored services.

Follows the store's own log, so it is right after a restart and needs no second source of truth.
"""

import asyncio
import logging

from podwire.apiserver.admission.service_allocations import (
    ADDRESSES,
    NODE_PORTS,
    SERVICES,
    ServiceAllocations,
    allocated_to,
    owner_of,
)
from podwire.apiserver.limits import Limits
from podwire.apiserver.read.informer import follow
from podwire.kinds.stored import unpack
from podwire.protocols.storage import Change, Item, StorageError

_log = logging.getLogger("podwire.apiserver.allocations")


class AllocationReconciler:
    """Releases addresses and ports that services gave up, and restores records that are missing."""

    def __init__(self, allocations: ServiceAllocations, limits: Limits) -> None:
        self._limits = limits
        self._holdings = allocations
        self._store = allocations.store

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(follow(self._store, SERVICES, _ignore, self._on_change))
            parts.create_task(self._sweep_periodically())

    async def _on_change(self, change: Change) -> None:
        if change.previous is None:
            return
        now = allocated_to(unpack(change.item)) if change.item else set()
        for key in allocated_to(unpack(change.previous)) - now:
            await self._holdings.release_until(key, change.revision)

    async def _sweep_periodically(self) -> None:
        while True:
            try:
                await self.sweep()
            except StorageError as error:
                _log.warning("cannot reconcile service addresses", extra={"error": str(error)})
            await asyncio.sleep(self._limits.allocation_sweep)

    async def sweep(self) -> None:
        """Releases leftovers of a crash, and restores records that are missing.

        A record without a service may belong to one that is being created, so only records older than any request are
        released.
        """
        records = [record for prefix in (ADDRESSES, NODE_PORTS) for record in (await self._store.list(prefix)).items]
        services = [unpack(item) for item in (await self._store.list(SERVICES)).items]
        held = {key: service for service in services for key in allocated_to(service)}
        for item in records:
            if item.key not in held and owner_of(item) and self._holdings.age(item) > self._limits.allocation_age:
                await self._holdings.release(item)
        for key in held.keys() - {record.key for record in records}:
            await self._holdings.take(key, held[key])


async def _ignore(_items: list[Item]) -> None:
    """The sweep handles the objects that exist at the start."""
