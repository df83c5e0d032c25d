"""DHCP leases of claims: renewed while claims have their interfaces, and released with the claims."""

import asyncio
import time
from collections.abc import Callable, Collection
from pathlib import Path

from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.lease_records import LeaseRecords
from podwire.ipam.dhcp.client import DhcpClient
from podwire.ipam.dhcp.lease_keeper import LeaseEvent, LeaseKeeper
from podwire.ipam.dhcp.lease_records import LeaseRecord


class LeaseManager(LeaseKeeper[Key]):
    def __init__(
        self,
        directory: Path | str,
        notify: Callable[[LeaseEvent[Key]], None],
        client: DhcpClient | None = None,
        *,
        host: str | None = None,
        regain: float | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`host` is the namespace of the host's links; None: the driver's own."""
        self._claims = LeaseRecords(directory)
        super().__init__(self._claims, notify, client, host=host, regain=regain, wall=wall)

    async def release_claim(self, claim_uid: str) -> None:
        """Releases all leases of a claim."""
        for record in await asyncio.to_thread(self._claims.of_claim, claim_uid):
            await self.release(record.key.id)

    async def collect_garbage(self, live: Collection[str]) -> tuple[LeaseRecord[Key], ...]:
        """Releases the leases of claims that are not `live`; returns them."""
        records = await asyncio.to_thread(lambda: list(self._claims.all()))
        orphans = tuple(record for record in records if record.key.claim.uid not in live)
        for record in orphans:
            await self.release(record.key.id)
        return orphans
