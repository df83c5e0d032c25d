"""Guarantees of every store, tested on each."""

import asyncio
import random

import pytest

from podwire.protocols.storage import (
    Gone,
    Item,
    KeyExists,
    NotYet,
    SlowWatcher,
    Stale,
    StorageError,
    StoreUnavailable,
    TooLarge,
)
from podwire.store import Window

PODS = "/registry/pods/"
WEB = "/registry/pods/default/web"


def names(page) -> list[str]:
    return [item.key.removeprefix("/registry/") for item in page.items]


async def test_a_created_key_can_be_read_and_has_its_own_revision(store):
    before = store.revision
    item = await store.create(WEB, b"one")
    assert item == Item(WEB, b"one", item.revision, item.revision)
    assert item.revision > before >= 1
    assert await store.get(WEB) == item
    assert store.revision == item.revision


async def test_a_key_that_is_not_there_is_none(store):
    assert await store.get(WEB) is None


async def test_a_key_is_created_only_once(store):
    first = await store.create(WEB, b"one")
    with pytest.raises(KeyExists):
        await store.create(WEB, b"two")
    assert await store.get(WEB) == first


async def test_an_update_keeps_when_the_key_was_created(store):
    first = await store.create(WEB, b"one")
    second = await store.update(WEB, b"two", expected=first.revision)
    third = await store.update(WEB, b"three", expected=second.revision)
    assert third == Item(WEB, b"three", third.revision, first.revision)
    assert first.revision < second.revision < third.revision
    assert await store.get(WEB) == third


async def test_an_update_of_an_older_revision_is_stale_and_returns_the_current_item(store):
    first = await store.create(WEB, b"one")
    second = await store.update(WEB, b"two", expected=first.revision)
    with pytest.raises(Stale) as refused:
        await store.update(WEB, b"late", expected=first.revision)
    assert refused.value.current == second
    assert await store.get(WEB) == second


@pytest.mark.parametrize("expected", [0, -1, 7])
async def test_a_missing_key_can_be_neither_updated_nor_deleted(store, expected):
    with pytest.raises(Stale) as refused:
        await store.update(WEB, b"x", expected=expected)
    assert refused.value.current is None
    with pytest.raises(Stale):
        await store.delete(WEB, expected=expected)
    assert await store.get(WEB) is None


async def test_a_deleted_key_is_gone_and_can_be_created_again(store):
    first = await store.create(WEB, b"one")
    with pytest.raises(Stale):
        await store.delete(WEB, expected=first.revision + 1)
    deleted = await store.delete(WEB, expected=first.revision)
    assert deleted > first.revision
    assert await store.get(WEB) is None
    again = await store.create(WEB, b"two")
    assert again.created == again.revision > deleted


async def test_an_empty_value_is_a_value(store):
    item = await store.create(WEB, b"")
    assert await store.get(WEB) == item
    assert (await store.list(PODS)).items == (item,)


async def test_a_value_that_is_too_large_is_refused_and_one_at_the_limit_is_not(store):
    with pytest.raises(TooLarge) as refused:
        await store.create(WEB, b"x" * 1_500_001)
    item = await store.create(WEB, b"x" * refused.value.limit)
    assert await store.get(WEB) == item
    with pytest.raises(TooLarge):
        await store.update(WEB, b"x" * 1_500_001, expected=item.revision)


async def test_a_list_is_in_key_order_and_does_not_leak_neighbours(store):
    for key in ("pods/b/2", "pods/a/1", "pods-x/a/1", "podsx/a/1", "pods/a/10", "pods/a-b/1", "pods/ä/1", "pods/𝄞/1"):
        await store.create(f"/registry/{key}", b"")
    assert names(await store.list(PODS)) == ["pods/a-b/1", "pods/a/1", "pods/a/10", "pods/b/2", "pods/ä/1", "pods/𝄞/1"]
    assert names(await store.list("/registry/pods/a/")) == ["pods/a/1", "pods/a/10"]
    empty = await store.list("/registry/secrets/")
    assert (empty.items, empty.more, empty.remaining) == ((), False, 0)
    assert empty.revision == store.revision


async def test_a_list_of_an_invalid_prefix_is_an_error(store):
    with pytest.raises(ValueError, match="ends in '/'"):
        await store.list("/registry/pods")


async def test_pages_of_a_list_are_of_one_revision_while_writes_go_on(store):
    items = [await store.create(f"{PODS}default/p{number}", b"old") for number in range(10)]
    await store.create("/registry/podsx/a", b"")
    page = await store.list(PODS, limit=3)
    assert (names(page), page.more, page.remaining) == ([f"pods/default/p{n}" for n in range(3)], True, 7)
    at = page.revision
    await store.delete(items[0].key, expected=items[0].revision)
    await store.delete(items[4].key, expected=items[4].revision)
    await store.update(items[5].key, b"new", expected=items[5].revision)
    await store.create(f"{PODS}default/p31", b"new")
    await store.delete(items[9].key, expected=items[9].revision)
    await store.create(items[9].key, b"reborn")
    seen = list(page.items)
    while page.more:
        page = await store.list(PODS, at=at, after=page.items[-1].key, limit=3)
        assert page.revision == at
        seen += page.items
        assert page.remaining == 10 - len(seen)
    assert seen == items
    assert names(await store.list(PODS)) == [f"pods/default/p{n}" for n in (1, 2, 3, 31, 5, 6, 7, 8, 9)]


async def test_a_list_can_go_back_to_every_revision_since_compaction(store):
    states = {store.revision: ()}
    state: dict[str, Item] = {}
    dice = random.Random(7)
    for _ in range(40):
        key = f"{PODS}default/{dice.choice('abcde')}"
        if key not in state:
            state[key] = await store.create(key, b"%d" % dice.randrange(100))
        elif dice.random() < 0.5:
            state[key] = await store.update(key, b"%d" % dice.randrange(100), expected=state[key].revision)
        else:
            await store.delete(key, expected=state.pop(key).revision)
        states[store.revision] = tuple(state[item] for item in sorted(state))
    for revision, items in states.items():
        assert (await store.list(PODS, at=revision)).items == items


async def test_a_revision_that_has_not_happened_is_not_yet(store):
    item = await store.create(WEB, b"one")
    with pytest.raises(NotYet) as refused:
        await store.list(PODS, at=item.revision + 5)
    assert refused.value.current >= item.revision


async def test_below_the_compacted_revision_all_is_gone_and_at_it_all_is_there(store):
    first = await store.create(WEB, b"one")
    second = await store.update(WEB, b"two", expected=first.revision)
    third = await store.update(WEB, b"three", expected=second.revision)
    await store.compact(second.revision)
    with pytest.raises(Gone) as refused:
        await store.list(PODS, at=first.revision)
    assert refused.value.oldest > first.revision
    with pytest.raises(Gone):
        await until_the_end(store.watch(PODS, after=first.revision))
    assert (await store.list(PODS, at=second.revision)).items == (second,)
    assert (await store.list(PODS, at=third.revision)).items == (third,)
    watch = store.watch(PODS, after=second.revision)
    async with asyncio.timeout(60):
        assert [change.item for change in await watch.next()] == [third]
    await store.compact(first.revision)  # going back changes nothing
    assert await store.get(WEB) == third


async def until_the_end(watch):
    async with asyncio.timeout(60):
        while True:
            await watch.next()


@pytest.mark.parametrize("at", [0, -1])
async def test_the_time_before_the_first_revision_is_gone(store, at):
    with pytest.raises(Gone):
        await store.list(PODS, at=at)
    with pytest.raises(Gone):
        await until_the_end(store.watch(PODS, after=at))


async def test_a_watch_delivers_every_change_once_in_order_with_the_previous_value(store, take):
    watch = store.watch(PODS, after=store.revision)
    first = await store.create(WEB, b"one")
    await store.create("/registry/secrets/default/s", b"")
    second = await store.update(WEB, b"two", expected=first.revision)
    deleted = await store.delete(WEB, expected=second.revision)
    again = await store.create(WEB, b"three")
    changes = await take(watch, 4)
    assert [(change.revision, change.item, change.previous) for change in changes] == [
        (first.revision, first, None),
        (second.revision, second, first),
        (deleted, None, second),
        (again.revision, again, None),
    ]
    assert {change.key for change in changes} == {WEB}


async def test_a_watch_resumes_after_any_revision(store, take):
    start = store.revision
    items = [await store.create(f"{PODS}default/p{number}", b"") for number in range(5)]
    for count, after in enumerate([start, *(item.revision for item in items[:-1])]):
        watch = store.watch(PODS, after=after)
        assert [change.item for change in await take(watch, 5 - count)] == items[count:]
        watch.close()


@pytest.mark.parametrize(
    ("prefix", "seen"),
    [
        pytest.param("/registry/pods/", ["pods/a/1", "pods/a/10", "pods/b/1"], id="a resource"),
        pytest.param("/registry/pods/a/", ["pods/a/1", "pods/a/10"], id="a namespace"),
        pytest.param("/registry/pods/a/1", ["pods/a/1"], id="one key and not its longer neighbour"),
        pytest.param("/registry/", ["pods/a/1", "pods/a/10", "podsx/a/1", "pods/b/1"], id="everything"),
    ],
)
async def test_a_watch_sees_only_its_prefix(store, take, prefix, seen):
    start = store.revision
    live = store.watch(prefix, after=start)
    for key in ("pods/a/1", "pods/a/10", "podsx/a/1", "pods/b/1"):
        await store.create(f"/registry/{key}", b"")
    last = await store.create("/registry/zzz/end", b"")
    for watch in (live, store.watch(prefix, after=start)):
        changes = await take(watch, len(seen) + (prefix == "/registry/"))
        assert [change.key.removeprefix("/registry/") for change in changes][: len(seen)] == seen
    assert last.revision > changes[0].revision


async def test_a_watch_from_the_future_waits_for_it(store, take):
    watch = store.watch(PODS, after=store.revision + 2)
    *_, third = [await store.create(f"{PODS}default/p{number}", b"") for number in range(3)]
    assert [change.item for change in await take(watch, 1)] == [third]


async def test_all_watchers_are_handed_the_same_change(store, take):
    start = store.revision
    one, two = store.watch(PODS, after=start), store.watch("/registry/", after=start)
    await store.create(WEB, b"")
    (first,), (second,) = await take(one, 1), await take(two, 1)
    (replayed,) = await take(store.watch(WEB, after=start), 1)
    assert first is second is replayed


async def test_a_watchs_revision_advances_with_changes_of_other_prefixes(store, take):
    watch = store.watch(PODS, after=store.revision)
    other = store.watch("/registry/secrets/", after=store.revision)
    pod = await store.create(WEB, b"")
    secret = await store.create("/registry/secrets/default/s", b"")
    await take(other, 1)
    assert watch.revision == pod.revision - 1
    await take(watch, 1)
    assert watch.revision == secret.revision


async def test_a_reader_that_gives_up_waiting_loses_nothing(store, take):
    watch = store.watch(PODS, after=store.revision)
    for number in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.next(), 0.01)
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        item = await store.create(f"{PODS}default/p{number}", b"")
        waiting.cancel()
        try:
            got = await waiting
        except asyncio.CancelledError:
            got = await take(watch, 1)
        assert [change.item for change in got] == [item]


async def test_a_slow_watcher_is_cut_while_others_go_on_and_resumes_from_its_revision(open_a_store, take):
    store = await open_a_store(queue=10)
    slow, quick = (store.watch(PODS, after=store.revision) for _ in range(2))
    first = await store.create(f"{PODS}default/first", b"")
    assert [change.item for change in await take(slow, 1)] == [first]
    await take(quick, 1)
    items = []
    for number in range(30):
        items.append(await store.create(f"{PODS}default/p{number}", b""))
        assert [change.item for change in await take(quick, 1)] == [items[-1]]
    with pytest.raises(SlowWatcher):
        await slow.next()
    with pytest.raises(SlowWatcher):
        await slow.next()
    assert slow.revision == first.revision
    resumed = store.watch(PODS, after=slow.revision)
    assert [change.item for change in await take(resumed, 30)] == items


async def test_a_closed_watch_ends_without_affecting_others(store, take):
    start = store.revision
    closed, other = store.watch(PODS, after=start), store.watch(PODS, after=start)
    waiting = asyncio.ensure_future(closed.next())
    await asyncio.sleep(0)
    closed.close()
    closed.close()
    with pytest.raises(StorageError):
        await waiting
    await store.create(WEB, b"")
    assert len(await take(other, 1)) == 1


async def test_each_of_many_concurrent_updates_of_a_key_has_one_winner(store):
    await store.create(WEB, b"0")

    async def add_one() -> int:
        while True:
            item = await store.get(WEB)
            try:
                return (await store.update(WEB, b"%d" % (int(item.value) + 1), expected=item.revision)).revision
            except Stale as stale:
                assert stale.current.revision > item.revision  # noqa: PT017 - the loop goes on

    revisions = await asyncio.gather(*(add_one() for _ in range(20)))
    assert (await store.get(WEB)).value == b"20"
    assert len(set(revisions)) == 20


async def test_one_of_many_concurrent_creations_of_a_key_succeeds(store):
    results = await asyncio.gather(*(store.create(WEB, b"%d" % n) for n in range(20)), return_exceptions=True)
    items = [result for result in results if isinstance(result, Item)]
    assert [await store.get(WEB)] == items
    assert sum(isinstance(result, KeyExists) for result in results) == 19


async def test_a_cancelled_write_happens_wholly_or_not_at_all_and_harms_no_other(store, take):
    watch = store.watch(PODS, after=store.revision)
    writes = [asyncio.ensure_future(store.create(f"{PODS}default/p{number}", b"")) for number in range(10)]
    await asyncio.sleep(0)
    for entry in writes[::2]:
        entry.cancel()
    await asyncio.wait(writes)
    after = await store.create(f"{PODS}default/q", b"")
    seen = []
    async with asyncio.timeout(60):
        while not seen or seen[-1].item != after:
            seen += await watch.next()
    assert tuple(sorted((change.item for change in seen), key=lambda item: item.key)) == (await store.list(PODS)).items
    assert {write.result() for write in writes[1::2]} < {change.item for change in seen}


async def test_the_past_is_kept_within_its_window(open_a_store, take):
    store = await open_a_store(keep=Window(revisions=100))
    start = store.revision
    watch = store.watch("/registry/", after=start)
    for number in range(600):
        await store.create(f"{PODS}default/p{number}", b"")
    await take(watch, 600)
    with pytest.raises(Gone):
        store.watch(PODS, after=start + 1)
    recent = store.watch(PODS, after=store.revision - 100)
    assert len(await take(recent, 100)) == 100


async def test_a_healthy_store_reports_no_failure(store):
    assert store.failure == ""


async def test_a_closed_store_ends_its_watches_and_refuses_calls(store):
    watch = store.watch(PODS, after=store.revision)
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    with pytest.raises(StoreUnavailable):
        await store.get(WEB)
    with pytest.raises(StoreUnavailable):
        await store.list(PODS)
    with pytest.raises(StoreUnavailable):
        await store.create(WEB, b"")
    with pytest.raises(StoreUnavailable):
        store.watch(PODS, after=1)
