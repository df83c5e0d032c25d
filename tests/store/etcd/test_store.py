"""A store on etcds that die, pause, fill up, demand certificates or speak for several."""

import asyncio
import contextlib
import ipaddress
import signal
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from podwire.protocols.storage import Gone, StoreFull, StoreUnavailable
from podwire.store import CannotOpen, Window
from podwire.store.etcd import EtcdStore, compactor
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.address import parse
from podwire.store.etcd.client import Compacted, EtcdClient, Limits
from tests.eventually import eventually_async

PODS = "/registry/pods/default/"
SHORT = Limits(call=1.0)
"""For those who get no answer. A living etcd of a busy machine may need longer."""
SOON = 60.0


async def test_keys_lie_under_the_prefix_as_kubernetes_would_lay_them(shared_etcd):
    usual = await EtcdStore.open(f"etcd://{shared_etcd.address}")
    own = await EtcdStore.open(f"etcd://{shared_etcd.address}?prefix=/own")
    try:
        await usual.create(f"{PODS}layout", b"usual")
        await own.create(f"{PODS}layout", b"own")
        for raw, value in ((b"/registry/pods/default/layout", b"usual"), (b"/own/pods/default/layout", b"own")):
            assert (await own._client.range(pb.RangeRequest(key=raw))).kvs[0].value == value
        assert [item.key for item in (await own.list("/registry/")).items] == [f"{PODS}layout"]
        with pytest.raises(ValueError, match="is not under"):
            await own.get("/elsewhere/x")
    finally:
        await usual.close()
        await own.close()


async def test_a_watch_resumes_from_before_the_store_was_opened(shared_etcd, take):
    url = f"etcd://{shared_etcd.address}?prefix=/resumed"
    store = await EtcdStore.open(url)
    start = store.revision
    items = [await store.create(f"{PODS}{number}", b"") for number in range(5)]
    await store.close()
    store = await EtcdStore.open(url)
    assert [change.item for change in await take(store.watch(PODS, after=start), 5)] == items
    await store.close()
    store = await EtcdStore.open(url, keep=Window(revisions=3))
    with pytest.raises(Gone):
        store.watch(PODS, after=start)
    await store.close()


async def test_a_compacted_past_is_found_at_opening(start_etcd, take):
    url = f"etcd://{start_etcd().address}"
    store = await EtcdStore.open(url)
    items = [await store.create(f"{PODS}{number}", b"") for number in range(30)]
    await store.compact(items[20].revision)
    await store.close()
    store = await EtcdStore.open(url)
    with pytest.raises(Gone):
        store.watch(PODS, after=items[19].revision)
    assert [change.item for change in await take(store.watch(PODS, after=items[20].revision), 9)] == items[21:]
    await store.close()


async def test_a_long_list_is_read_in_parts_of_one_revision(shared_etcd):
    store = await EtcdStore.open(f"etcd://{shared_etcd.address}?prefix=/long", limits=Limits(chunk=7))
    items = [await store.create(f"{PODS}{number:03}", b"") for number in range(30)]
    page = await store.list(PODS)
    assert (page.items, page.more, page.remaining) == (tuple(items), False, 0)
    page = await store.list(PODS, limit=20)
    assert (page.items, page.more, page.remaining) == (tuple(items[:20]), True, 10)
    await store.close()


class Writing:
    """Writes all the time; knows what was acknowledged and what is unknown."""

    def __init__(self, store: EtcdStore) -> None:
        self.store = store
        self.acknowledged: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.stopped = False

    async def run(self, name: str) -> None:
        number = 0
        while not self.stopped:
            key = f"{PODS}{name}-{number}"
            number += 1
            try:
                self.acknowledged[key] = (await self.store.create(key, b"")).revision
            except StoreUnavailable:
                self.unknown.add(key)
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def writing(store: EtcdStore, count: int = 4):
    work = Writing(store)
    tasks = [asyncio.create_task(work.run(f"w{number}")) for number in range(count)]
    try:
        yield work
    finally:
        # Never cancelled: a write that is already at etcd would land after what the test writes last.
        work.stopped = True
        await asyncio.wait(tasks)


async def hold_against_the_watch(store: EtcdStore, watch, work: Writing) -> None:
    """Acknowledged writes are there, unknown ones are there or not, and the watch saw all of them once, in order."""
    last = await store.create(f"{PODS}last", b"")
    seen = []
    async with asyncio.timeout(SOON):
        while not seen or seen[-1].revision < last.revision:
            seen += await watch.next()
    revisions = [change.revision for change in seen]
    assert revisions == sorted(set(revisions))
    watched = {change.key: change.revision for change in seen}
    assert watched == {item.key: item.revision for item in (await store.list(PODS)).items}
    assert work.acknowledged.items() <= watched.items()
    assert len(work.acknowledged) > 20


async def test_a_killed_etcd_costs_neither_a_write_nor_an_event(start_etcd):
    member = start_etcd()
    store = await EtcdStore.open(f"etcd://{member.address}")
    watch = store.watch(PODS, after=store.revision)
    async with writing(store) as work:
        for _ in range(2):
            before = len(work.acknowledged)
            await eventually_async(lambda before=before: len(work.acknowledged) > before + 50)
            member.kill()
            await eventually_async(lambda: "interrupted" in store.failure)
            member.start()
            await asyncio.to_thread(member.wait)
        before = len(work.acknowledged)
        await eventually_async(lambda: len(work.acknowledged) > before + 50)
        await eventually_async(lambda: store.failure == "")
    await hold_against_the_watch(store, watch, work)
    await store.close()


async def test_a_paused_etcd_means_no_answer_within_the_deadline(start_etcd):
    member = start_etcd()
    store = await EtcdStore.open(f"etcd://{member.address}", limits=Limits(call=2.0))
    item = await store.create(f"{PODS}a", b"")
    member.signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(SOON):
            with pytest.raises(StoreUnavailable, match="DEADLINE_EXCEEDED"):
                await store.create(f"{PODS}b", b"")
        async with asyncio.timeout(SOON):
            with pytest.raises(StoreUnavailable):
                await store.get(item.key)
    finally:
        member.signal(signal.SIGCONT)
    found = None
    async with asyncio.timeout(SOON):
        while found is None:  # a connection that was silent for long is made anew
            with contextlib.suppress(StoreUnavailable):
                found = await store.get(item.key)
    assert found == item
    await store.close()


async def test_with_several_members_the_store_outlives_any_one(etcd_cluster):
    addresses = ",".join(item.address for item in etcd_cluster)
    store = await EtcdStore.open(f"etcd://{addresses}")
    watch = store.watch(PODS, after=store.revision)
    async with writing(store) as work:
        for victim in etcd_cluster:
            victim.kill()
            before = len(work.acknowledged)
            await eventually_async(lambda before=before: len(work.acknowledged) > before + 20)
            victim.start()
            await asyncio.to_thread(victim.wait)
            await eventually_async(lambda before=before: len(work.acknowledged) > before + 40)
    await hold_against_the_watch(store, watch, work)
    await store.close()


async def fill(store: EtcdStore) -> None:
    for number in range(100):
        await store.create(f"{PODS}{number}", b"x" * 200_000)


async def test_an_etcd_over_its_quota_is_full_and_can_still_be_read(start_etcd):
    store = await EtcdStore.open(f"etcd://{start_etcd('--quota-backend-bytes=2000000').address}")
    item = await store.create(f"{PODS}first", b"")
    assert store.failure == ""
    with pytest.raises(StoreFull, match=r"NOSPACE alarm.*etcdctl defrag.*etcdctl alarm disarm"):
        await fill(store)
    assert await store.get(item.key) == item
    assert "NOSPACE alarm" in store.failure, "readiness says so"
    await store.delete(item.key, expected=item.revision)
    assert await store.get(item.key) is None
    await store.close()


async def test_an_etcd_over_its_quota_is_compacted_all_the_same(start_etcd):
    member = start_etcd("--quota-backend-bytes=2000000")
    store = await EtcdStore.open(f"etcd://{member.address}")
    with pytest.raises(StoreFull):
        await fill(store)
    client = EtcdClient(parse(f"etcd://{member.address}"), Limits())
    with pytest.raises(StoreFull):
        await compactor.advance(client, compactor.Tick(0, store.revision))
    with pytest.raises(Compacted):
        await client.range(pb.RangeRequest(key=b"\0", revision=store.revision - 1))
    await client.close()
    await store.close()


async def test_an_etcd_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CannotOpen, match=r"etcd at 127\.0\.0\.1:1: no connection within 1 s"):
        await EtcdStore.open("etcd://127.0.0.1:1", limits=SHORT)


async def test_an_etcd_that_is_too_old_is_refused(shared_etcd):
    with pytest.raises(CannotOpen, match=r"etcd is version 3\.\d+\.\d+; 99\.1 is the oldest"):
        await EtcdStore.open(f"etcd://{shared_etcd.address}", limits=Limits(oldest=(99, 1)))


class Authority:
    """Certificates for one test."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.ca = self._write("ca.crt", self._sign(self._name, self._key, authority=True))

    def issue(self, name: str) -> tuple[str, str]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        form = serialization.PrivateFormat.PKCS8
        pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return self._write(f"{name}.crt", self._sign(subject, key)), self._write(f"{name}.key", pem)

    def _sign(self, subject, key, *, authority: bool = False) -> bytes:
        now = datetime.now(UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _write(self, name: str, data: bytes) -> str:
        path = self.directory / name
        path.write_bytes(data)
        return str(path)


async def test_an_etcd_that_asks_for_a_certificate_is_shown_one(tmp_path, start_etcd, take):
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    tls = (f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={authority.ca}", "--client-cert-auth")
    member = start_etcd(*tls, scheme="https")
    cert, key = authority.issue("client")
    store = await EtcdStore.open(f"etcd://{member.address}?ca={authority.ca}&cert={cert}&key={key}")
    watch = store.watch(PODS, after=store.revision)
    item = await store.create(f"{PODS}a", b"")
    assert [change.item for change in await take(watch, 1)] == [item]
    await store.close()
    with pytest.raises(CannotOpen, match="no connection"):
        await EtcdStore.open(f"etcd://{member.address}?ca={authority.ca}", limits=SHORT)
    with pytest.raises(CannotOpen, match=f"{tmp_path}/none: No such file"):
        await EtcdStore.open(f"etcd://{member.address}?ca={tmp_path}/none")
