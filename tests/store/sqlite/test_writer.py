import asyncio
import sqlite3
import time

import pytest

from podwire.protocols.storage import Gone, StoreFull
from podwire.store import Window
from podwire.store.sqlite import SqliteStore
from podwire.store.sqlite.database import Database
from podwire.store.sqlite.writer import Limits
from tests.eventually import eventually_async

PODS = "/registry/pods/default/"


def watch_batches(monkeypatch, seconds: float = 0.0) -> list[int]:
    """The sizes of the transactions, each slowed down as by a slow disk."""
    sizes: list[int] = []
    append = Database.append

    def slow(self, changes):
        sizes.append(len(changes))
        time.sleep(seconds)
        append(self, changes)

    monkeypatch.setattr(Database, "append", slow)
    return sizes


def full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    return error


async def test_writes_that_gather_while_the_disk_is_busy_share_a_transaction(tmp_path, monkeypatch, take):
    sizes = watch_batches(monkeypatch, 0.05)
    store = await SqliteStore.open(tmp_path)
    watch = store.watch(PODS, after=1)
    first = asyncio.ensure_future(store.create(f"{PODS}first", b""))
    await eventually_async(lambda: sizes == [1], interval=0.001)
    items = await asyncio.gather(*(store.create(f"{PODS}{number}", b"") for number in range(100)))
    assert sizes == [1, 100]
    assert [change.item for change in await take(watch, 101)] == [await first, *items]
    await store.close()


async def test_nothing_is_seen_before_it_is_durable(tmp_path, monkeypatch):
    watch_batches(monkeypatch, 0.1)
    store = await SqliteStore.open(tmp_path)
    watch = store.watch(PODS, after=1)
    writing = asyncio.ensure_future(store.create(f"{PODS}a", b""))
    await asyncio.sleep(0.03)
    assert await store.get(f"{PODS}a") is None
    assert (await store.list(PODS)).items == ()
    assert (store.revision, watch.revision) == (1, 1)
    item = await writing
    assert await store.get(f"{PODS}a") == item
    await store.close()


async def test_a_write_is_not_refused_for_one_that_fails(tmp_path, monkeypatch):
    store = await SqliteStore.open(tmp_path)
    append, failures = Database.append, [full()]

    def once_full(self, changes):
        time.sleep(0.05)
        if failures:
            raise failures.pop()
        append(self, changes)

    monkeypatch.setattr(Database, "append", once_full)
    first = asyncio.ensure_future(store.create(f"{PODS}a", b"first"))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(store.create(f"{PODS}a", b"second"))
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(results[0], StoreFull)
    assert results[1].value == b"second"
    await store.close()


async def test_the_log_is_folded_into_the_file_when_idle(tmp_path):
    keep, limits = Window(revisions=10), Limits(idle=0.05)
    store = await SqliteStore.open(tmp_path, keep=keep, limits=limits)
    item = await store.create(f"{PODS}a", b"x" * 10_000)
    for _ in range(600):
        item = await store.update(f"{PODS}a", b"x" * 10_000, expected=item.revision)
    wal, file = tmp_path / "store.db-wal", tmp_path / "store.db"
    live = 110 * 3 * 4096  # rows that are kept until the next compaction, in pages
    await eventually_async(lambda: not wal.stat().st_size and file.stat().st_size < live)
    await store.create(f"{PODS}b", b"")
    await store.close()


async def test_the_log_stays_small_under_load(tmp_path):
    store = await SqliteStore.open(tmp_path)
    for number in range(10):
        await asyncio.gather(*(store.create(f"{PODS}{number}-{n}", b"x" * 40_000) for n in range(100)))
    assert (tmp_path / "store.db-wal").stat().st_size < 30_000_000
    await store.close()


async def test_compaction_is_retried_after_a_failure(tmp_path, monkeypatch):
    remove, failures = Database.remove, [full(), full()]

    def sometimes_full(self, superseded, *, compacted):
        if failures:
            raise failures.pop()
        remove(self, superseded, compacted=compacted)

    monkeypatch.setattr(Database, "remove", sometimes_full)
    store = await SqliteStore.open(tmp_path, limits=Limits(retry=0.05))
    item = await store.create(f"{PODS}a", b"")
    for _ in range(20):
        item = await store.update(f"{PODS}a", b"", expected=item.revision)
    await store.compact(item.revision)
    await eventually_async(lambda: not store._writer._maintenance.superseded and not failures)
    await store.close()
    database = Database(tmp_path)
    assert database._connection.execute("SELECT count(*) FROM log").fetchone() == (1,)
    database.close()


async def test_a_floor_is_remembered_even_when_no_row_goes_with_it(tmp_path):
    store = await SqliteStore.open(tmp_path)
    await store.create("/registry/pods/default/web", b"")
    await store.compact(store.revision)
    floor = store.revision
    await store.create("/registry/pods/default/other", b"")
    await store.close()
    again = await SqliteStore.open(tmp_path)
    with pytest.raises(Gone):
        again.watch("/registry/pods/", after=floor - 1)
    await again.close()
