import asyncio
import time

import pytest

from podwire.protocols.storage import Change, Gone, Item, SlowWatcher, StorageError
from podwire.store.broadcast import Broadcaster
from podwire.store.history import History

PODS = "/registry/pods/"


def put(revision: int, key: str = "/registry/pods/default/web") -> Change:
    return Change(revision, key, Item(key, b"", revision, revision), None)


def publish(broadcaster: Broadcaster, *changes: Change) -> None:
    for each in changes:
        broadcaster.history.append(each)
    broadcaster.publish(changes)


async def test_a_replay_does_not_count_against_the_queue():
    broadcaster = Broadcaster(History(), queue=2)
    publish(broadcaster, *(put(revision) for revision in range(2, 12)))
    watch = broadcaster.subscribe(PODS, 1)
    publish(broadcaster, put(12), put(13))
    assert [each.revision for each in await watch.next()] == list(range(2, 14))
    publish(broadcaster, put(14), put(15), put(16))
    with pytest.raises(SlowWatcher):
        await watch.next()
    assert watch.revision == 13


async def test_the_revision_stops_where_the_watch_was_cut():
    broadcaster = Broadcaster(History(), queue=1)
    watch = broadcaster.subscribe(PODS, 1)
    publish(broadcaster, put(2, "/registry/secrets/a/b"))
    assert watch.revision == 2
    publish(broadcaster, put(3), put(4), put(5, "/registry/secrets/a/b"))
    assert watch.revision == 2
    resumed = broadcaster.subscribe(PODS, watch.revision)
    assert [each.revision for each in await resumed.next()] == [3, 4]


async def test_a_reader_gets_the_queued_events_after_the_end():
    broadcaster = Broadcaster(History())
    watch = broadcaster.subscribe(PODS, 1)
    publish(broadcaster, put(2))
    broadcaster.end_all(StorageError("over"))
    assert watch.revision == 1
    assert [each.revision for each in await watch.next()] == [2]
    assert watch.revision == 2
    with pytest.raises(StorageError, match="over"):
        await watch.next()


async def test_a_restarted_feed_answers_gone_to_readers_that_missed_events():
    broadcaster = Broadcaster(History())
    behind, ahead = broadcaster.subscribe(PODS, 1), broadcaster.subscribe(PODS, 20)
    publish(broadcaster, put(2))
    broadcaster.restart(20)
    publish(broadcaster, put(21))
    assert [each.revision for each in await behind.next()] == [2]
    with pytest.raises(Gone):
        await behind.next()
    assert [each.revision for each in await ahead.next()] == [21]


async def test_an_ended_watch_leaves_nothing_behind():
    broadcaster = Broadcaster(History())
    for number in range(10):
        broadcaster.subscribe(f"{PODS}{number}/", 1).close()
    assert broadcaster._subscribers == {}


async def test_a_batch_wakes_a_reader_once():
    broadcaster = Broadcaster(History())
    watch = broadcaster.subscribe(PODS, 1)
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    publish(broadcaster, put(2), put(3))
    publish(broadcaster, put(4))
    assert [each.revision for each in await waiting] == [2, 3, 4]


async def test_watches_elsewhere_cost_a_change_next_to_nothing():
    def seconds(others: int) -> float:
        broadcaster = Broadcaster(History(), queue=10**6)
        for number in range(others):
            broadcaster.subscribe(f"/registry/secrets/ns{number}/", 1)
        start = time.process_time()
        publish(broadcaster, *(put(revision) for revision in range(2, 5002)))
        return time.process_time() - start

    alone = min(seconds(0) for _ in range(3))
    crowded = min(seconds(5000) for _ in range(3))
    assert crowded < 3 * alone + 0.01
