import asyncio
import time

import pytest

from podwire.protocols.storage import Change, Gone, Item, SlowWatcher, StorageError
from podwire.store.broadcast import Feed
from podwire.store.history import History

PODS = "/registry/pods/"


def put(revision: int, key: str = "/registry/pods/default/web") -> Change:
    return Change(revision, key, Item(key, b"", revision, revision), None)


def publish(feed: Feed, *changes: Change) -> None:
    for each in changes:
        feed.history.append(each)
    feed.publish(changes)


async def test_a_replay_does_not_count_against_the_queue():
    feed = Feed(History(), queue=2)
    publish(feed, *(put(revision) for revision in range(2, 12)))
    watch = feed.subscribe(PODS, 1)
    publish(feed, put(12), put(13))
    assert [each.revision for each in await watch.next()] == list(range(2, 14))
    publish(feed, put(14), put(15), put(16))
    with pytest.raises(SlowWatcher):
        await watch.next()
    assert watch.revision == 13


async def test_the_revision_stops_where_the_watch_was_cut():
    feed = Feed(History(), queue=1)
    watch = feed.subscribe(PODS, 1)
    publish(feed, put(2, "/registry/secrets/a/b"))
    assert watch.revision == 2
    publish(feed, put(3), put(4), put(5, "/registry/secrets/a/b"))
    assert watch.revision == 2
    resumed = feed.subscribe(PODS, watch.revision)
    assert [each.revision for each in await resumed.next()] == [3, 4]


async def test_at_the_end_a_reader_still_gets_what_was_queued():
    feed = Feed(History())
    watch = feed.subscribe(PODS, 1)
    publish(feed, put(2))
    feed.end_all(StorageError("over"))
    assert watch.revision == 1
    assert [each.revision for each in await watch.next()] == [2]
    assert watch.revision == 2
    with pytest.raises(StorageError, match="over"):
        await watch.next()


async def test_a_feed_that_begins_anew_tells_gone_to_those_who_missed_something():
    feed = Feed(History())
    behind, ahead = feed.subscribe(PODS, 1), feed.subscribe(PODS, 20)
    publish(feed, put(2))
    feed.restart(20)
    publish(feed, put(21))
    assert [each.revision for each in await behind.next()] == [2]
    with pytest.raises(Gone):
        await behind.next()
    assert [each.revision for each in await ahead.next()] == [21]


async def test_an_ended_watch_leaves_nothing_behind():
    feed = Feed(History())
    for number in range(10):
        feed.subscribe(f"{PODS}{number}/", 1).close()
    assert feed._subscribers == {}


async def test_a_batch_wakes_a_reader_once():
    feed = Feed(History())
    watch = feed.subscribe(PODS, 1)
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    publish(feed, put(2), put(3))
    publish(feed, put(4))
    assert [each.revision for each in await waiting] == [2, 3, 4]


async def test_watches_elsewhere_cost_a_change_next_to_nothing():
    def seconds(others: int) -> float:
        feed = Feed(History(), queue=10**6)
        for number in range(others):
            feed.subscribe(f"/registry/secrets/ns{number}/", 1)
        start = time.process_time()
        publish(feed, *(put(revision) for revision in range(2, 5002)))
        return time.process_time() - start

    alone = min(seconds(0) for _ in range(3))
    crowded = min(seconds(5000) for _ in range(3))
    assert crowded < 3 * alone + 0.01
