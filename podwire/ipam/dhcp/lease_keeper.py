"""Renews DHCP leases while their owners have interfaces, and releases them with the owners.

A daemon does this, not the pod: a pod needs no client and no privileges, and keeps its address when the daemon
restarts. Each lease has a task of its own, so that none waits for another's server. States of a lease:

| state           | record                            | renewed by            | address in the pod               |
|-----------------|-----------------------------------|-----------------------|----------------------------------|
| granted         | written before the caller's answer | its task             | yes                              |
| expired, or NAK | kept                              | its task, by DISCOVER | removed until a lease is granted |
| owner released  | removed after DHCPRELEASE         | -                     | -                                |
| daemon crashed  | kept                              | the next instance     | yes                              |

There are two kinds of owners. A claim outlives its pods: its lease is renewed from the host while no pod has the
interface, and may become one of another address. A CNI attachment is an interface of one pod (`Policy.PODS`): its
result has been returned, so another address is of no use; and when both the interface and the lease have ended, the
record is removed.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import IPv4Address
from typing import Generic

from podwire.failpoints import declare, failpoint
from podwire.ipam.dhcp.client import DhcpClient, Endpoint, NoLease, Withdrawn, endpoint_of
from podwire.ipam.dhcp.lease_records import K, LeaseRecord, LeaseRecords, PodLocation
from podwire.linux import errors as linux
from podwire.linux.proc.namespaces import identity
from podwire.protocols.dhcp import leases
from podwire.protocols.dhcp.asking import DEFAULT_OPTIONS, SentOptions
from podwire.protocols.dhcp.leases import Lease, Phase
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

GRANTED = declare("dhcp.granted", "a server granted a lease, and its record is not written")
RELEASED = declare("dhcp.released", "a lease was released, and its record still exists")

REGAIN = 30.0
"""Seconds between attempts to get a lost lease again."""


class LeaseChange(Enum):
    PROLONGED = "prolonged"
    """The lease was extended; its options may have changed."""
    UNANSWERED = "unanswered"
    """No server answered, but the lease has time left."""
    LOST = "lost"
    """It expired or was withdrawn: the address may be assigned to another host."""
    REGAINED = "regained"


class Policy(Enum):
    CLAIMS = "claims"
    PODS = "pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEvent(Generic[K]):
    """A change of a lease."""

    key: K
    what: LeaseChange
    lease: Lease
    reason: str = ""
    place: PodLocation | None = None


class LeaseKeeper(Generic[K]):
    def __init__(
        self,
        records: LeaseRecords[K],
        notify: Callable[[LeaseEvent[K]], None],
        client: DhcpClient | None = None,
        *,
        policy: Policy = Policy.CLAIMS,
        sent_options: Callable[[K], SentOptions] = lambda _owner: DEFAULT_OPTIONS,
        host: str | None = None,
        regain: float | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`sent_options` returns the options that the client of an owner sends. `host` is the namespace of the host's
        links; None: the daemon's own."""
        self._records, self._policy, self._sent_options = records, policy, sent_options
        self._notify, self._client = notify, client or DhcpClient()
        self._host, self._wall = host, wall
        self._regain = REGAIN if regain is None else regain
        self._births: dict[str, tuple[float, float]] = {}
        self._locks = KeyedLocks()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Renews all leases until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for record in await asyncio.to_thread(lambda: list(self._records.all())):
                self._watch(record.key.id)
            await asyncio.get_running_loop().create_future()

    async def acquire(
        self,
        key: K,
        *,
        link: str,
        mac: str,
        parent: str = "",
        hostname: str = "",
        place: PodLocation | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the client tells how far it came
    ) -> Lease:
        """Returns the lease of a key; the present one if it has time left, else a new one, of the same address if the
        server agrees. Raises NoLease.

        `link` is on the host, and up, unless the interface has its `place` in a pod already. Its hardware address need
        not be `mac`. When it is gone, the lease can be released through its `parent`, which is on the same network.
        """
        async with self._locks.hold(key.id):
            record = await asyncio.to_thread(self._records.get, key.id)
            if (
                record is not None
                and (record.link, record.mac) == (link, mac)
                and place in (None, record.place)
                and self._phase(record) is not Phase.EXPIRED
            ):
                self._watch(key.id)
                return record.lease
            if place is None:
                endpoint = self._endpoint(link, mac, key, hostname, self._host)
            else:
                endpoint = self._endpoint(place.name, mac, key, hostname, place.netns)
            lease = await self._asked(endpoint, record.lease.address.ip if record else None, timeout)
            failpoint(GRANTED)
            since = self._wall()
            await self._put(
                LeaseRecord(
                    key=key,
                    link=link,
                    mac=mac,
                    parent=parent,
                    hostname=hostname,
                    lease=lease,
                    since=since,
                    place=place,
                )
            )
        self._watch(key.id)
        return lease

    async def place(self, key: K, place: PodLocation | None) -> None:
        """The interface moved into a pod, or (None) to the host. Does nothing without a lease."""
        async with self._locks.hold(key.id):
            record = await asyncio.to_thread(self._records.get, key.id)
            if record is not None and record.place != place:
                await self._put(replace(record, place=place))

    async def lease(self, key: K) -> Lease | None:
        """Returns the lease of a key, if it has time left."""
        record = await asyncio.to_thread(self._records.get, key.id)
        return record.lease if record is not None and self._phase(record) is not Phase.EXPIRED else None

    async def release(self, id_: str) -> None:
        """Releases the lease of this id, if there is one. If the server cannot be reached, it expires."""
        async with self._locks.hold(id_):
            watch = self._watches.pop(id_, None)
            if watch is not None:
                watch.cancel()
            record = await asyncio.to_thread(self._records.get, id_)
            if record is None:
                return
            try:
                endpoint, _ = self._where(record)
                self._client.release(record.lease, endpoint)
            except linux.LinuxError as error:
                log.warning(
                    "cannot send DHCPRELEASE",
                    extra={"lease": str(record.key), "address": str(record.lease.address.ip), "error": str(error)},
                )
            failpoint(RELEASED)
            await asyncio.to_thread(self._records.remove, id_)
        self._births.pop(id_, None)

    def _watch(self, id_: str) -> None:
        """Starts the task of a lease; before `run` there is none, and it starts those of all leases."""
        watch = self._watches.get(id_)
        if self._tasks is not None and (watch is None or watch.done()):
            self._watches[id_] = self._tasks.create_task(self._keep(id_), name=f"keep the lease {id_}")

    async def _keep(self, id_: str) -> None:
        """Reads the record each time: another instance may have renewed or released the lease."""
        lost, why = False, "the lease ended, and no server gave it more time"
        while (record := await asyncio.to_thread(self._records.get, id_)) is not None:
            phase, left = leases.phase(record.lease, self._age(record))
            if lost and phase is not Phase.EXPIRED:  # somebody asked again, or another driver
                lost = False
                self._report(record, LeaseChange.REGAINED)
            if phase is Phase.BOUND:
                if record.lease.is_infinite:
                    return
                await asyncio.sleep(left)
                continue
            if phase is Phase.EXPIRED and not lost:
                lost = True
                self._report(record, LeaseChange.LOST, why)
            if phase is Phase.EXPIRED and self._policy is Policy.PODS and not self._is_in_pod(record):
                await self._forget(record)
                return
            try:
                lease = await self._prolonged(record, phase, left)
            except Withdrawn as error:
                why = str(error)
                await self._ended(record)
            except (NoLease, linux.LinuxError) as error:
                await self._unanswered(record, phase, str(error))
            else:
                await self._renewed(id_, lease, LeaseChange.REGAINED if lost else LeaseChange.PROLONGED)
                lost = False

    async def _prolonged(self, record: LeaseRecord[K], phase: Phase, left: float) -> Lease:
        """Extends a lease. From the host, where the address is not configured, the client asks as after a boot
        (INIT-REBOOT); an expired lease is asked for anew, and any address is accepted for a claim."""
        endpoint, link = self._where(record)
        address = record.lease.address
        if self._policy is Policy.PODS and not link:
            raise NoLease("DHCP: the interface does not exist any more")
        if phase is Phase.EXPIRED:
            lease = await self._asked(endpoint, address.ip)
            if self._policy is Policy.PODS and lease.address != address:
                self._client.release(lease, endpoint)
                raise NoLease(f"DHCP: the server gave {lease.address} instead of {address}")
            return lease
        if not link:
            return await self._client.confirm(endpoint, address.ip, left)
        if phase is Phase.RENEWING:
            return await self._client.renew(record.lease, endpoint, link, left)
        return await self._client.rebind(record.lease, endpoint, left)

    async def _asked(self, endpoint: Endpoint, remembered: IPv4Address | None, limit: float | None = None) -> Lease:
        """Acquires a new lease. Raises NoLease."""
        return await self._client.acquire(
            endpoint.ifindex,
            endpoint.mac,
            client_id=endpoint.client_id,
            hostname=endpoint.hostname,
            netns=endpoint.netns,
            sent=endpoint.sent,
            remembered=remembered,
            timeout=limit,
        )

    async def _unanswered(self, record: LeaseRecord[K], phase: Phase, reason: str) -> None:
        """Waits before the next attempt; not at all when the next phase of the lease has begun."""
        if phase is Phase.EXPIRED:
            await asyncio.sleep(self._regain)
            return
        self._report(record, LeaseChange.UNANSWERED, reason)
        if self._phase(record) is phase:
            await asyncio.sleep(leases.retry_in(record.lease, self._age(record)))

    async def _ended(self, record: LeaseRecord[K]) -> None:
        """Marks a lease as expired."""
        async with self._locks.hold(record.key.id):
            now = await asyncio.to_thread(self._records.get, record.key.id)
            if now is not None and now.lease == record.lease:
                since = min(now.since, self._wall() - now.lease.seconds)
                await self._put(replace(now, since=since))

    def _is_in_pod(self, record: LeaseRecord[K]) -> bool:
        try:
            return bool(self._where(record)[1])
        except linux.LinuxError:
            return False

    async def _forget(self, record: LeaseRecord[K]) -> None:
        """Removes the record of an expired lease, unless it was granted anew."""
        async with self._locks.hold(record.key.id):
            if await asyncio.to_thread(self._records.get, record.key.id) == record:
                await asyncio.to_thread(self._records.remove, record.key.id)
                self._births.pop(record.key.id, None)

    async def _renewed(self, id_: str, lease: Lease, what: LeaseChange) -> None:
        async with self._locks.hold(id_):
            now = await asyncio.to_thread(self._records.get, id_)
            if now is None:
                return
            new = replace(now, lease=lease, since=self._wall())
            await self._put(new)
        self._report(new, what)

    async def _put(self, record: LeaseRecord[K]) -> None:
        """A cancelled caller keeps its lock until the record is written, so that a later removal comes later."""
        await thread_to_completion(self._records.put, record)

    def _report(self, record: LeaseRecord[K], what: LeaseChange, reason: str = "") -> None:
        fields = {"lease": str(record.key), "address": str(record.lease.address.ip), "change": what.value}
        log.info("DHCP lease changed", extra=fields | ({"error": reason} if reason else {}))
        self._notify(LeaseEvent(key=record.key, what=what, lease=record.lease, reason=reason, place=record.place))

    def _where(self, record: LeaseRecord[K]) -> tuple[Endpoint, str]:
        """Returns where to send from, and the interface's name if it is in its pod, else empty. Raises NoSuchLink."""
        if record.place is not None:
            try:
                name, netns, inode = record.place.name, record.place.netns, record.place.inode
                if inode and identity(netns) != inode:
                    raise linux.NoSuchNamespace(errno.ENOENT, f"find the namespace {netns}", "it is another one now")
                return self._endpoint(name, record.mac, record.key, record.hostname, netns), name
            except (linux.NoSuchNamespace, linux.WrongKind, linux.NoSuchLink):
                pass  # the pod is gone, and the interface back on the host, or gone with it
        try:
            return self._endpoint(record.link, record.mac, record.key, record.hostname, self._host), ""
        except linux.NoSuchLink:
            if not record.parent:
                raise
            return self._endpoint(record.parent, record.mac, record.key, record.hostname, self._host), ""

    def _endpoint(self, link: str, mac: str, key: K, hostname: str, netns: str | None) -> Endpoint:
        sent = self._sent_options(key)
        return endpoint_of(link, mac=mac, client_id=key.client_id, hostname=hostname, netns=netns, sent=sent)

    def _phase(self, record: LeaseRecord[K]) -> Phase:
        return leases.phase(record.lease, self._age(record))[0]

    def _age(self, record: LeaseRecord[K]) -> float:
        """Seconds since it was granted. The wall clock is read once for each lease, because it may be set meanwhile."""
        known = self._births.get(record.key.id)
        if known is None or known[0] != record.since:
            born = asyncio.get_running_loop().time() - max(0.0, self._wall() - record.since)
            known = self._births[record.key.id] = (record.since, born)
        return asyncio.get_running_loop().time() - known[1]
