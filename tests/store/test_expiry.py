"""The history of the stores in memory and in SQLite grows old, also while nobody writes."""

import pytest

from podwire.protocols.storage import Gone
from podwire.store import MemoryStore, Window
from podwire.store.sqlite import SqliteStore
from tests.eventually import eventually_async

PODS = "/registry/pods/"
SHORT = Window(seconds=0.3)


async def test_a_history_expires_while_nobody_writes_and_watches_go_on(tmp_path, take):
    for store in MemoryStore(keep=SHORT), await SqliteStore.open(tmp_path, keep=SHORT):
        first = await store.create(f"{PODS}default/first", b"")
        second = await store.create(f"{PODS}default/second", b"")
        watch = store.watch(PODS, after=second.revision)

        async def is_gone(store=store, revision=first.revision):
            try:
                await store.list(PODS, at=revision)
            except Gone:
                return True
            return False

        await eventually_async(is_gone)
        with pytest.raises(Gone):
            store.watch(PODS, after=first.revision)
        assert (await store.list(PODS, at=second.revision)).items == (first, second)
        assert watch.revision == second.revision
        third = await store.create(f"{PODS}default/third", b"")
        assert [change.item for change in await take(watch, 1)] == [third]
        await store.close()


async def test_a_loaded_history_expires_too(tmp_path):
    store = await SqliteStore.open(tmp_path)
    items = [await store.create(f"{PODS}default/{number}", b"") for number in range(3)]
    await store.close()
    store = await SqliteStore.open(tmp_path, keep=SHORT)
    await eventually_async(lambda: store._versions.history.floor == items[-1].revision)
    await store.close()
