"""Leases that are kept: through restarts, in pods, to their end."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.lease_manager import LeaseManager
from podwire.dradriver.addresses.lease_records import LeaseRecords
from podwire.dradriver.claims.allocations import ClaimRef
from podwire.durable.records import NewerFormat
from podwire.ipam.dhcp.client import DhcpClient, NoLease, Timing
from podwire.ipam.dhcp.lease_keeper import LeaseChange
from podwire.ipam.dhcp.lease_records import PodLocation
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.dhcp.messages import EVERYBODY, Type

FIRST = IPv4Address("10.77.0.100")
QUICK = Timing(acquire=30, answer=20, probe=0)
LONG = 30.0
RENEWED, REBOUND, FOREVER = 10_000, 50_000, 100_000
"""T1, T2 and the end of leases: far from each other, so that a busy machine passes none of them by chance."""


def key(claim="web", device="eth1"):
    ref = ClaimRef(namespace="default", name=claim, uid=f"6f1b1f2e-0000-4000-8000-{claim.encode().hex():0>12}")
    return Key(claim=ref, request="nic", device=device)


class Reports:
    """Collects reports of leases, and waits for some."""

    def __init__(self):
        self.news = []
        self._came = asyncio.Event()

    def __call__(self, news):
        self.news.append(news)
        self._came.set()

    async def of(self, what):
        async with asyncio.timeout(LONG):
            while not (found := [new for new in self.news if new.what is what]):
                self._came.clear()
                await self._came.wait()
        return found[0]


@pytest.fixture
def reported():
    return Reports()


@pytest.fixture
def keeper(lan, tmp_path, reported):
    return LeaseManager(tmp_path / "leases", reported, DhcpClient(QUICK), host=lan.host, regain=0.2)


@asynccontextmanager
async def running(keeper):
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.wait([task])


def asked(lan, **more):
    return {"link": "nic", "mac": lan.mac, **more}


async def test_asking_again_gives_the_same_without_a_word(lan, server, keeper):
    lease = await keeper.acquire(key(), **asked(lan))
    heard = len(server.heard)
    assert await keeper.acquire(key(), **asked(lan)) == lease
    assert await keeper.lease(key()) == lease
    assert len(server.heard) == heard


async def test_a_driver_that_is_started_again_gives_the_same(lan, server, keeper, tmp_path, reported):
    lease = await keeper.acquire(key(), **asked(lan))
    heard = len(server.heard)
    again = LeaseManager(tmp_path / "leases", reported, DhcpClient(QUICK), host=lan.host)
    assert await again.acquire(key(), **asked(lan)) == lease
    assert len(server.heard) == heard


async def test_a_lease_that_was_granted_and_never_written_is_granted_again(lan, server, keeper, tmp_path):
    lease = await keeper.acquire(key(), **asked(lan))
    LeaseRecords(tmp_path / "leases").remove(key().id)
    assert (await keeper.acquire(key(), **asked(lan))).address == lease.address


async def test_when_a_lease_has_ended_the_same_address_is_asked_for(lan, server, keeper, aged):
    wanted = IPv4Address("10.77.0.180")
    server.given[key().client_id] = wanted
    lease = await keeper.acquire(key(), **asked(lan))
    aged(lease.seconds)
    assert await keeper.lease(key()) is None
    server.heard.clear()
    assert (await keeper.acquire(key(), **asked(lan))).address.ip == wanted
    assert server.story == [Type.REQUEST]


@pytest.fixture
def aged(tmp_path):
    """Makes a lease older than it is: its server granted it so many seconds ago."""

    def age(seconds):
        disk = LeaseRecords(tmp_path / "leases")
        [kept] = disk.all()
        disk.put(replace(kept, since=time.time() - seconds))

    return age


@pytest.fixture
async def in_pod(lan, server, keeper, moved, aged):
    """Gets a lease of some age for an interface that is in its pod then; nobody keeps it yet."""

    async def get(age):
        server.seconds, server.t1, server.t2 = FOREVER, RENEWED, REBOUND
        lease = await keeper.acquire(key(), **asked(lan))
        moved(lease)
        await keeper.place(key(), PodLocation(netns=lan.pod, name="net1"))
        aged(age)
        return lease

    return get


async def test_a_pods_lease_is_renewed_in_its_namespace(server, keeper, reported, in_pod):
    lease = await in_pod(RENEWED)
    server.t1 = RENEWED + 1
    async with running(keeper):
        renewed = await reported.of(LeaseChange.PROLONGED)
    assert renewed.lease.address == lease.address
    assert renewed.lease.renew_after == RENEWED + 1
    message, datagram = server.heard[-1]
    assert (message.ciaddr, datagram.source, datagram.target) == (FIRST, FIRST, server.ip)


async def test_restarted_driver_renews_the_leases_of_its_predecessor(lan, in_pod, reported, tmp_path):
    await in_pod(RENEWED)
    async with running(LeaseManager(tmp_path / "leases", reported, DhcpClient(QUICK), host=lan.host)):
        assert (await reported.of(LeaseChange.PROLONGED)).key == key()


async def test_late_in_its_life_a_lease_is_renewed_by_any_server(server, keeper, reported, in_pod):
    await in_pod(REBOUND)
    server.ignores = lambda message, datagram: datagram.target == server.ip
    async with running(keeper):
        rebound = await reported.of(LeaseChange.PROLONGED)
    assert rebound.lease.address.ip == FIRST
    message, datagram = server.heard[-1]
    assert (message.ciaddr, datagram.target) == (FIRST, EVERYBODY)


async def test_a_short_lease_goes_through_its_whole_life(lan, server, keeper, reported):
    """In its own time: nobody renews it, nobody rebinds it, it ends."""
    server.seconds = 2
    async with running(keeper):
        await keeper.acquire(key(), **asked(lan))
        server.silent_to = set(Type)
        await reported.of(LeaseChange.LOST)
    assert [new.what for new in reported.news][-1] is LeaseChange.LOST


async def test_failing_renewal_is_reported_before_the_lease_ends(lan, server, reported, in_pod, tmp_path):
    await in_pod(RENEWED)
    server.silent_to = set(Type)
    hasty = DhcpClient(Timing(answer=0.1))
    async with running(LeaseManager(tmp_path / "leases", reported, hasty, host=lan.host)) as keeper:
        unanswered = await reported.of(LeaseChange.UNANSWERED)
        assert await keeper.lease(key()) is not None
    assert unanswered.reason == "DHCP: no server answered within 0.1 s"


async def test_a_lease_of_a_pod_that_does_not_run_yet_is_renewed_from_the_host(lan, server, keeper, reported, aged):
    server.seconds, server.t1, server.t2 = FOREVER, RENEWED, REBOUND
    await keeper.acquire(key(), **asked(lan))
    aged(RENEWED)
    async with running(keeper):
        assert (await reported.of(LeaseChange.PROLONGED)).lease.address.ip == FIRST
    assert server.heard[-1][0].ciaddr == IPv4Address(0)


async def test_expired_lease_is_reported_and_the_same_address_regained(server, keeper, reported, in_pod):
    lease = await in_pod(FOREVER)
    server.silent_to = set(Type)
    async with running(keeper):
        lost = await reported.of(LeaseChange.LOST)
        assert (lost.key, lost.reason) == (key(), "the lease ended, and no server gave it more time")
        assert await keeper.lease(key()) is None
        server.silent_to = set()
        assert (await reported.of(LeaseChange.REGAINED)).lease.address == lease.address
    assert [new.what for new in reported.news].count(LeaseChange.LOST) == 1


async def test_an_address_that_is_withdrawn_is_lost_at_once(server, keeper, reported, in_pod):
    await in_pod(RENEWED)
    server.refuses, server.silent_to = {FIRST}, {Type.DISCOVER}
    async with running(keeper):
        lost = await reported.of(LeaseChange.LOST)
        assert lost.reason == "DHCP: the server withdrew the address: not yours"
        assert await keeper.lease(key()) is None


async def test_when_an_address_is_withdrawn_another_one_is_taken(server, keeper, reported, in_pod):
    await in_pod(RENEWED)
    server.refuses = {FIRST}
    server.given.clear()
    async with running(keeper):
        await reported.of(LeaseChange.LOST)
        regained = await reported.of(LeaseChange.REGAINED)
        assert await keeper.lease(key()) == regained.lease
    assert regained.lease.address.ip == FIRST + 1


async def test_a_claim_gives_all_its_leases_back_and_they_are_forgotten(lan, server, keeper, reported, tmp_path):
    async with running(keeper):
        for device in ("eth1", "eth2"):
            await keeper.acquire(key(device=device), **asked(lan))
        await keeper.acquire(key("other"), **asked(lan))
        await keeper.release_claim(key().claim.uid)
        await server.has_heard(Type.RELEASE, 2)
        await keeper.release_claim(key().claim.uid)
        assert [item.key.claim.name for item in LeaseRecords(tmp_path / "leases").all()] == ["other"]
        assert len(keeper._watches) == 1
    assert server.types.count(Type.RELEASE) == 2


async def test_claims_that_are_gone_give_their_leases_back(lan, server, keeper):
    for claim in ("a", "b"):
        await keeper.acquire(key(claim), **asked(lan))
    gone = await keeper.collect_garbage({key("b").claim.uid})
    message, _ = await server.has_heard(Type.RELEASE)
    assert [item.key for item in gone] == [key("a")]
    assert message.ciaddr == gone[0].lease.address.ip
    assert await keeper.lease(key("b")) is not None


async def test_lease_whose_link_is_gone_is_forgotten(lan, server, keeper, tmp_path):
    await keeper.acquire(key(), **asked(lan))
    with KernelNetwork(lan.host) as host:
        host.links.delete("nic")
    await keeper.release_claim(key().claim.uid)
    assert list(LeaseRecords(tmp_path / "leases").all()) == []


async def test_a_lease_is_given_back_from_the_host_when_the_pod_is_gone(lan, server, keeper):
    await keeper.acquire(key(), **asked(lan))
    await keeper.place(key(), PodLocation(netns=f"{lan.pod}-gone", name="net1"))
    await keeper.release_claim(key().claim.uid)
    assert (await server.has_heard(Type.RELEASE))[0].ciaddr == FIRST


async def test_without_a_lease_there_is_nothing_to_keep(lan, keeper, tmp_path):
    with pytest.raises(NoLease):
        await keeper.acquire(key(), **asked(lan, timeout=0.1))
    await keeper.place(key(), PodLocation(netns=lan.pod, name="net1"))
    await keeper.release_claim(key().claim.uid)
    assert list(LeaseRecords(tmp_path / "leases").all()) == []


async def test_a_claim_with_a_silent_server_does_not_hold_up_another(lan, server, keeper):
    server.ignores = lambda message, datagram: message.mac.hex(":") == "02:00:00:00:00:01"
    waiting = asyncio.create_task(keeper.acquire(key("slow"), link="nic", mac="02:00:00:00:00:01"))
    await server.has_heard(Type.DISCOVER)
    assert (await keeper.acquire(key("quick"), **asked(lan))).address.ip == FIRST
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff"])
async def test_a_damaged_record_is_quarantined_and_the_lease_acquired_again(lan, server, keeper, tmp_path, damage):
    lease = await keeper.acquire(key(), **asked(lan))
    (tmp_path / "leases" / f"{key().id}.json").write_bytes(damage)
    assert await keeper.lease(key()) is None
    assert (await keeper.acquire(key(), **asked(lan))).address == lease.address


async def test_a_record_of_a_newer_format_is_refused(lan, server, keeper, tmp_path):
    await keeper.acquire(key(), **asked(lan))
    (tmp_path / "leases" / f"{key().id}.json").write_bytes(b'{"version": 2}')
    with pytest.raises(NewerFormat):
        await keeper.lease(key())


async def test_lease_record_is_read_as_it_was_written(lan, server, keeper, tmp_path):
    server.more = {121: bytes((16, 10, 5, 10, 77, 0, 254, 8, 11, 0, 0, 0, 0)), 6: bytes((1, 1, 1, 1)), 15: b"lab"}
    lease = await keeper.acquire(key(), hostname="web", **asked(lan))
    place = PodLocation(netns=lan.pod, name="net1")
    await keeper.place(key(), place)
    [kept] = LeaseRecords(tmp_path / "leases").all()
    assert (kept.lease, kept.key, kept.place, kept.hostname) == (lease, key(), place, "web")
