import asyncio
import time

import pytest

from podwire.protocols.storage import Change, Condition, Field, Gone, Item, SlowWatcher, StorageError
from podwire.store.broadcast import QUEUE_BYTES, SHARED, SHARED_BYTES, WAKE, Broadcaster
from podwire.store.history import History

PODS = "/registry/pods/"


def put(revision: int, key: str = "/registry/pods/default/web", value: bytes = b"") -> Change:
    return Change(revision, key, Item(key, value, revision, revision), None)


def publish(broadcaster: Broadcaster, *changes: Change) -> None:
    for change in changes:
        broadcaster.history.append(change)
    broadcaster.publish(changes)


async def test_a_replay_does_not_count_against_the_queue():
    broadcaster = Broadcaster(History(), queue=2)
    publish(broadcaster, *(put(revision) for revision in range(2, 12)))
    watch = broadcaster.subscribe(PODS, 1)
    publish(broadcaster, put(12), put(13))
    assert [item.revision for item in await watch.next()] == list(range(2, 14))
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
    assert [item.revision for item in await resumed.next()] == [3, 4]


async def test_a_reader_gets_the_queued_events_after_the_end():
    broadcaster = Broadcaster(History())
    watch = broadcaster.subscribe(PODS, 1)
    publish(broadcaster, put(2))
    broadcaster.end_all(StorageError("over"))
    assert watch.revision == 1
    assert [item.revision for item in await watch.next()] == [2]
    assert watch.revision == 2
    with pytest.raises(StorageError, match="over"):
        await watch.next()


async def test_a_restarted_feed_answers_gone_to_readers_that_missed_events():
    broadcaster = Broadcaster(History())
    behind, ahead = broadcaster.subscribe(PODS, 1), broadcaster.subscribe(PODS, 20)
    publish(broadcaster, put(2))
    broadcaster.restart(20)
    publish(broadcaster, put(21))
    assert [item.revision for item in await behind.next()] == [2]
    with pytest.raises(Gone):
        await behind.next()
    assert [item.revision for item in await ahead.next()] == [21]


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
    assert [item.revision for item in await waiting] == [2, 3, 4]


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


# --- what readers derive ----------------------------------------------------------------------------------------------


async def test_readers_share_what_they_derive_from_a_change():
    broadcaster = Broadcaster(History())
    first, second = broadcaster.subscribe(PODS, 1), broadcaster.subscribe(PODS, 1)
    publish(broadcaster, put(2))
    [change], [same] = await first.next(), await second.next()
    assert change.derived("frame", lambda: "made by the first") == "made by the first"
    assert same.derived("frame", lambda: "made by the second") == "made by the first"


@pytest.mark.parametrize(
    ("changes", "size"), [pytest.param(SHARED + 10, 1, id="many"), pytest.param(20, SHARED_BYTES // 4, id="large")]
)
async def test_derived_forms_are_kept_of_the_latest_changes_only(changes, size):
    broadcaster = Broadcaster(History())
    watch = broadcaster.subscribe(PODS, 1)
    for revision in range(2, 2 + changes):
        publish(broadcaster, put(revision, value=b"x" * size))
        for change in await watch.next():
            change.derived("frame", lambda: b"encoded")
    kept = [change for change in broadcaster.history.after(1, PODS) if change.notes]
    assert 0 < len(kept) <= min(SHARED, max(1, SHARED_BYTES // size))
    assert kept[-1].revision == broadcaster.history.revision
    old = broadcaster.history.after(1, PODS)[0]
    assert old.derived("frame", lambda: b"again") == b"again"
    assert not old.notes


async def test_a_reader_that_falls_too_many_bytes_behind_is_cut():
    broadcaster = Broadcaster(History())
    watch = broadcaster.subscribe(PODS, 1)
    large = QUEUE_BYTES // 4
    publish(broadcaster, *(put(revision, value=bytes(large)) for revision in range(2, 8)))
    with pytest.raises(SlowWatcher):
        await watch.next()
    assert watch.revision == 1


# --- triggers ---------------------------------------------------------------------------------------------------------

NODE = Field("node", lambda item: item.value.decode())


def moved(revision: int, before: bytes | None, now: bytes | None, key: str = "/registry/pods/default/web") -> Change:
    item = None if now is None else Item(key, now, revision, 1)
    return Change(revision, key, item, None if before is None else Item(key, before, revision - 1, 1))


async def test_a_watch_with_a_trigger_gets_changes_to_and_from_its_text():
    broadcaster = Broadcaster(History())
    watch = broadcaster.subscribe(PODS, 1, Condition(NODE, "n1"))
    everything = broadcaster.subscribe(PODS, 1)
    changes = [
        moved(2, None, b""),
        moved(3, b"", b"n1"),
        moved(4, b"n1", b"n1"),
        moved(5, b"n1", b"n2"),
        moved(6, b"n2", None),
        moved(7, None, b"n1"),
        moved(8, b"n1", None),
    ]
    publish(broadcaster, *changes)
    assert [item.revision for item in await watch.next()] == [3, 4, 5, 7, 8]
    assert [item.revision for item in await everything.next()] == [2, 3, 4, 5, 6, 7, 8]
    publish(broadcaster, moved(9, b"n2", b"n3"))
    assert watch.revision == 9, "a bookmark may say it"


async def test_an_ended_watch_with_a_trigger_leaves_nothing_behind():
    broadcaster = Broadcaster(History())
    watches = [broadcaster.subscribe(PODS, 1, Condition(NODE, f"n{number}")) for number in range(10)]
    for watch in watches[:5]:
        watch.close()
    broadcaster.end_all(StorageError("over"))
    assert broadcaster._triggered == {}
    with pytest.raises(StorageError, match="over"):
        await watches[-1].next()


async def test_watches_of_other_nodes_are_not_touched_by_a_change():
    broadcaster = Broadcaster(History(), queue=10**6)
    watches = [broadcaster.subscribe(PODS, 1, Condition(NODE, f"n{number}")) for number in range(100)]
    publish(broadcaster, *(moved(revision, b"n1", b"n1") for revision in range(2, 52)))
    assert [len(watch.drain()) for watch in watches] == [0, 50, *[0] * 98]


# --- turns ------------------------------------------------------------------------------------------------------------


async def test_others_run_between_groups_of_readers():
    broadcaster = Broadcaster(History())
    order: list[str] = []

    async def read(watch) -> None:
        await watch.next()
        order.append("reader")

    async def write() -> None:
        for _ in range(8):
            order.append("writer")
            await asyncio.sleep(0)

    readers = [asyncio.create_task(read(broadcaster.subscribe(PODS, 1))) for _ in range(WAKE * 5)]
    await asyncio.sleep(0)
    publish(broadcaster, put(2))
    await asyncio.gather(write(), *readers)
    turns = "".join("w" if item == "writer" else "r" for item in order).split("w")
    assert max(map(len, turns)) <= 2 * WAKE
    assert order.count("reader") == WAKE * 5


async def test_a_reader_that_waits_for_its_turn_finds_all_changes_of_the_meantime():
    broadcaster = Broadcaster(History())
    readers = [asyncio.create_task(broadcaster.subscribe(PODS, 1).next()) for _ in range(WAKE * 3)]
    await asyncio.sleep(0)
    publish(broadcaster, put(2))
    await asyncio.sleep(0)
    publish(broadcaster, put(3))
    batches = [[item.revision for item in batch] for batch in await asyncio.gather(*readers)]
    assert batches[0] == [2]
    assert batches[-1] == [2, 3]
