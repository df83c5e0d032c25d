"""Leases of DHCP kept for as long as claims have their interfaces: renewed where the interface is, given back at last.

The driver does this, not the pod: a pod needs no client, no privileges, and keeps its address when the driver restarts.
Each lease has a task of its own, so none waits for another's server. A lease that ends is told, and asked for again
for as long as somebody claims it: the same address if a server lets the client have it, else another one.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from weakref import WeakValueDictionary

from podwire.dradriver.addresses.dhcp_client import DhcpClient, NoLease, Spot, Withdrawn, spot_of
from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.lease_records import Kept, KeptLeases, Place
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.protocols.dhcp import leases
from podwire.protocols.dhcp.leases import Lease, Phase

log = logging.getLogger(__name__)

GRANTED = declare("dhcp.granted", "a server granted a lease, and it is not written")
RELEASED = declare("dhcp.released", "a lease was given back, and its record is still there")

REGAIN = 30.0
"""Seconds between attempts to get a lease again that was lost."""


class What(Enum):
    PROLONGED = "prolonged"
    """The lease has more time; what came with it may have changed."""
    UNANSWERED = "unanswered"
    """Nobody gave it more time, but it has some left."""
    LOST = "lost"
    """It ended, or was withdrawn: the address may be somebody else's from now on."""
    REGAINED = "regained"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What happened to a lease."""

    key: Key
    what: What
    lease: Lease
    reason: str = ""


Tell = Callable[[News], None]


class DhcpKeeper:
    def __init__(
        self,
        directory: Path | str,
        tell: Tell,
        client: DhcpClient | None = None,
        *,
        host: str | None = None,
        regain: float | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`host` is the namespace of the host's links, None the driver's own."""
        self._disk = KeptLeases(directory)
        self._tell, self._client = tell, client or DhcpClient()
        self._host, self._wall = host, wall
        self._regain = REGAIN if regain is None else regain
        self._births: dict[str, tuple[float, float]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Keep what there is, and whatever comes, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for each in await asyncio.to_thread(lambda: list(self._disk.all())):
                self._watch(each.key.id)
            await asyncio.get_running_loop().create_future()

    async def acquire(
        self,
        key: Key,
        *,
        link: str,
        mac: str,
        parent: str = "",
        hostname: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 - the client tells how far it came
    ) -> Lease:
        """The lease of a key; the same as before while that lasts, and the same address if a server lets it. NoLease.

        `link` is on the host, and up. Its hardware address need not be `mac`. When it is no more, the lease can be
        given back over its `parent`, which is on the same network.
        """
        async with self._lock(key.id):
            kept = await asyncio.to_thread(self._disk.get, key.id)
            if kept is not None and (kept.link, kept.mac) == (link, mac) and self._phase(kept) is not Phase.EXPIRED:
                self._watch(key.id)
                return kept.lease
            spot = self._spot(link, mac, key, hostname, self._host)
            lease = await self._asked(spot, kept.lease.address.ip if kept else None, timeout)
            failpoint(GRANTED)
            since = self._wall()
            await self._put(
                Kept(key=key, link=link, mac=mac, parent=parent, hostname=hostname, lease=lease, since=since)
            )
        self._watch(key.id)
        return lease

    async def place(self, key: Key, place: Place | None) -> None:
        """The interface is in a pod now; None: on the host again. Nothing happens without a lease."""
        async with self._lock(key.id):
            kept = await asyncio.to_thread(self._disk.get, key.id)
            if kept is not None and kept.place != place:
                await self._put(replace(kept, place=place))

    async def release(self, claim_uid: str) -> None:
        """Give back all leases of a claim. A server that cannot be told will see them end."""
        for each in await asyncio.to_thread(self._disk.of, claim_uid):
            await self._give_back(each.key.id)

    async def gc(self, live: Collection[str]) -> tuple[Kept, ...]:
        """Give back what belongs to claims that are not among these uids; tells what that was."""
        kept = await asyncio.to_thread(lambda: list(self._disk.all()))
        gone = tuple(each for each in kept if each.key.claim.uid not in live)
        for each in gone:
            await self._give_back(each.key.id)
        return gone

    async def lease(self, key: Key) -> Lease | None:
        """What a key has, if it still has time."""
        kept = await asyncio.to_thread(self._disk.get, key.id)
        return kept.lease if kept is not None and self._phase(kept) is not Phase.EXPIRED else None

    async def _give_back(self, id_: str) -> None:
        async with self._lock(id_):
            watch = self._watches.pop(id_, None)
            if watch is not None:
                watch.cancel()
            kept = await asyncio.to_thread(self._disk.get, id_)
            if kept is None:
                return
            try:
                spot, _ = self._where(kept)
                self._client.release(kept.lease, spot)
            except linux.LinuxError as error:
                log.warning("%s: %s could not be given back: %s", kept.key, kept.lease.address.ip, error)
            failpoint(RELEASED)
            await asyncio.to_thread(self._disk.remove, id_)
        self._births.pop(id_, None)

    def _watch(self, id_: str) -> None:
        """Before `run` there is nobody to watch; it will begin with all there are."""
        watch = self._watches.get(id_)
        if self._tasks is not None and (watch is None or watch.done()):
            self._watches[id_] = self._tasks.create_task(self._keep(id_), name=f"keep the lease {id_}")

    async def _keep(self, id_: str) -> None:
        """Reads the disk each time: another driver may have renewed the lease, or given it back."""
        lost, why = False, "the lease ended, and no server gave it more time"
        while (kept := await asyncio.to_thread(self._disk.get, id_)) is not None:
            phase, left = leases.phase(kept.lease, self._age(kept))
            if lost and phase is not Phase.EXPIRED:  # somebody asked again, or another driver
                lost = False
                self._told(kept, What.REGAINED)
            if phase is Phase.BOUND:
                if kept.lease.is_infinite:
                    return
                await asyncio.sleep(left)
                continue
            if phase is Phase.EXPIRED and not lost:
                lost = True
                self._told(kept, What.LOST, why)
            try:
                lease = await self._prolonged(kept, phase, left)
            except Withdrawn as error:
                why = str(error)
                await self._ended(kept)
            except (NoLease, linux.LinuxError) as error:
                await self._unanswered(kept, phase, str(error))
            else:
                await self._renewed(id_, lease, What.REGAINED if lost else What.PROLONGED)
                lost = False

    async def _prolonged(self, kept: Kept, phase: Phase, left: float) -> Lease:
        """Ask for more time. From the host, where the address does not work, a client asks as if it had just booted;
        so does one whose time is over, and that takes any other address as well."""
        spot, link = self._where(kept)
        if phase is Phase.EXPIRED:
            return await self._asked(spot, kept.lease.address.ip)
        if not link:
            return await self._client.confirm(spot, kept.lease.address.ip, left)
        if phase is Phase.RENEWING:
            return await self._client.renew(kept.lease, spot, link, left)
        return await self._client.rebind(kept.lease, spot, left)

    async def _asked(self, spot: Spot, remembered: IPv4Address | None, limit: float | None = None) -> Lease:
        """A new lease. Raises NoLease."""
        return await self._client.acquire(
            spot.ifindex,
            spot.mac,
            client_id=spot.client_id,
            hostname=spot.hostname,
            netns=spot.netns,
            remembered=remembered,
            timeout=limit,
        )

    async def _unanswered(self, kept: Kept, phase: Phase, reason: str) -> None:
        """Wait before it is tried again; not at all when it is time for something else."""
        if phase is Phase.EXPIRED:
            await asyncio.sleep(self._regain)
            return
        self._told(kept, What.UNANSWERED, reason)
        if self._phase(kept) is phase:
            await asyncio.sleep(leases.retry_in(kept.lease, self._age(kept)))

    async def _ended(self, kept: Kept) -> None:
        """Its time is over, whatever it was."""
        async with self._lock(kept.key.id):
            now = await asyncio.to_thread(self._disk.get, kept.key.id)
            if now is not None and now.lease == kept.lease:
                since = min(now.since, self._wall() - now.lease.seconds)
                await self._put(replace(now, since=since))

    async def _renewed(self, id_: str, lease: Lease, what: What) -> None:
        async with self._lock(id_):
            now = await asyncio.to_thread(self._disk.get, id_)
            if now is None:
                return
            new = replace(now, lease=lease, since=self._wall())
            await self._put(new)
        self._told(new, what)

    async def _put(self, kept: Kept) -> None:
        """Whoever is cancelled meanwhile keeps the lock until it is written: a later removal comes later."""
        writing = asyncio.ensure_future(asyncio.to_thread(self._disk.put, kept))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    def _told(self, kept: Kept, what: What, reason: str = "") -> None:
        log.info("%s: lease of %s %s %s", kept.key, kept.lease.address.ip, what.value, reason)
        self._tell(News(key=kept.key, what=what, lease=kept.lease, reason=reason))

    def _where(self, kept: Kept) -> tuple[Spot, str]:
        """Where to speak from, and the interface's name if it is in its pod; empty when it is not. NoSuchLink."""
        if kept.place is not None:
            try:
                name, netns = kept.place.name, kept.place.netns
                return self._spot(name, kept.mac, kept.key, kept.hostname, netns), name
            except (linux.NoSuchNamespace, linux.WrongKind, linux.NoSuchLink):
                pass  # the pod is gone, and the interface back on the host, or gone with it
        try:
            return self._spot(kept.link, kept.mac, kept.key, kept.hostname, self._host), ""
        except linux.NoSuchLink:
            if not kept.parent:
                raise
            return self._spot(kept.parent, kept.mac, kept.key, kept.hostname, self._host), ""

    def _spot(self, link: str, mac: str, key: Key, hostname: str, netns: str | None) -> Spot:
        return spot_of(link, mac=mac, client_id=key.client_id, hostname=hostname, netns=netns)

    def _phase(self, kept: Kept) -> Phase:
        return leases.phase(kept.lease, self._age(kept))[0]

    def _age(self, kept: Kept) -> float:
        """Seconds since it was granted. The wall clock is asked once for each lease: it may be set meanwhile."""
        known = self._births.get(kept.key.id)
        if known is None or known[0] != kept.since:
            born = asyncio.get_running_loop().time() - max(0.0, self._wall() - kept.since)
            known = self._births[kept.key.id] = (kept.since, born)
        return asyncio.get_running_loop().time() - known[1]

    def _lock(self, id_: str) -> asyncio.Lock:
        return self._locks.setdefault(id_, asyncio.Lock())
