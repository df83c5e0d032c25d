"""Addresses for orders: those that claims name, those from pools, and those that a DHCP server leases."""

import asyncio
from collections.abc import Sequence

from podwire.dradriver.addressing.addresses import Addresses
from podwire.dradriver.addressing.keys import Key, key_of
from podwire.dradriver.offers import Order
from podwire.dradriver.settings import Interface


class Leasing:
    """Implements ports.Addressing."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

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

    async def release(self, claim_uid: str) -> None:
        """Raises OSError."""
        await asyncio.to_thread(self._addresses.release, claim_uid)

    async def run(self) -> None:
        await asyncio.Event().wait()
