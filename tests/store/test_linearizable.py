"""Many clients at once: what they saw must be one total order that agrees with real time.

Every write that succeeded carries its revision, so the order is known and need not be searched for; what is checked is
that real time, every read, every refusal and the watch agree with it. The checker itself is tried on stores that lie.
"""

import asyncio
import itertools
import random
from bisect import bisect_left
from dataclasses import dataclass, field

import pytest

from podwire.protocols.storage import Change, Item, KeyExists, Page, Stale
from podwire.store import MemoryStore

KEYS = [f"/registry/pods/default/{name}" for name in "abcd"]
CLIENTS = 8
STEPS = 60


@dataclass
class Seen:
    """One operation: when it began and ended on one common counter, and what came of it."""

    begun: int
    ended: int
    key: str
    result: object
    revision: int = 0


@dataclass
class Record:
    ticks: itertools.count = field(default_factory=itertools.count)
    writes: list[Seen] = field(default_factory=list)
    reads: list[Seen] = field(default_factory=list)
    lists: list[Seen] = field(default_factory=list)


async def client(store, record: Record, dice: random.Random) -> None:
    known: dict[str, Item] = {}
    for _ in range(STEPS):
        key, action, begun = dice.choice(KEYS), dice.random(), next(record.ticks)
        try:
            if action < 0.3:
                item = await store.get(key)
                record.reads.append(Seen(begun, next(record.ticks), key, item))
                known.pop(key, None)
                if item is not None:
                    known[key] = item
            elif action < 0.4:
                page = await store.list("/registry/pods/")
                record.lists.append(Seen(begun, next(record.ticks), "", page))
            elif key not in known:
                known[key] = await store.create(key, b"%d" % dice.getrandbits(60))
                record.writes.append(Seen(begun, next(record.ticks), key, known[key], known[key].revision))
            elif action < 0.8:
                known[key] = await store.update(key, b"%d" % dice.getrandbits(60), expected=known[key].revision)
                record.writes.append(Seen(begun, next(record.ticks), key, known[key], known[key].revision))
            else:
                revision = await store.delete(key, expected=known.pop(key).revision)
                record.writes.append(Seen(begun, next(record.ticks), key, None, revision))
        except Stale as stale:
            record.reads.append(Seen(begun, next(record.ticks), key, stale.current))
            known.pop(key, None)
            if stale.current is not None:
                known[key] = stale.current
        except KeyExists:
            known.pop(key, None)


async def play(store, seed: int) -> tuple[Record, list[Change], int]:
    record, start = Record(), store.revision
    watch = store.watch("/registry/pods/", after=start)
    await asyncio.gather(*(client(store, record, random.Random(f"{seed} {number}")) for number in range(CLIENTS)))
    seen: list[Change] = []
    async with asyncio.timeout(60):
        while len(seen) < len(record.writes):
            seen += await watch.next()
    return record, seen, start


def check(record: Record, watched: list[Change], start: int) -> None:
    writes = sorted(record.writes, key=lambda each: each.revision)
    assert [(write.revision, write.key, write.result) for write in writes] == [
        (change.revision, change.key, change.item) for change in watched
    ], "the watch tells another story"
    by_end = sorted((write.ended, write.revision) for write in writes)
    done = list(itertools.accumulate((revision for _, revision in by_end), max))

    def acknowledged_before(tick: int) -> int:
        count = bisect_left(by_end, (tick, 0))
        return done[count - 1] if count else start

    for entry in writes:
        assert entry.revision > acknowledged_before(entry.begun), "a later write has an earlier revision"
    states = {start: {}}
    for change in watched:
        state = dict(states[max(states)])
        assert state.pop(change.key, None) == change.previous, "a change of something that was not there"
        if change.item is not None:
            state[change.key] = change.item
        states[change.revision] = state
    for read in record.reads:
        possible = [state for at, state in states.items() if at >= acknowledged_before(read.begun)]
        assert any(state.get(read.key) == read.result for state in possible), f"a stale read: {read}"
    for list_ in record.lists:
        page: Page = list_.result
        at = max(revision for revision in states if revision <= page.revision)
        assert page.revision >= acknowledged_before(list_.begun), "a stale list"
        assert {item.key: item for item in page.items} == states[at], "a list of no moment"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_concurrent_clients_see_one_order(store, seed):
    record, watched, start = await play(store, seed)
    assert len(record.writes) > 50
    check(record, watched, start)


class Yielding(MemoryStore):
    """Gives way to others before it reads, so that there is something to see."""

    async def get(self, key):
        await asyncio.sleep(0)
        return await super().get(key)


class StaleReads(Yielding):
    def __init__(self):
        super().__init__()
        self.old: dict[str, Item | None] = {}

    async def get(self, key):
        self.old[key], old = await super().get(key), self.old.get(key)
        return old


class LostEvents(Yielding):
    def _publish(self, changes):
        super()._publish(changes)
        if self.revision % 10 == 0:
            for item in self._broadcaster._subscribers["/registry/pods/"]:
                item._queue.pop()
                item._queue.append(Change(self.revision, KEYS[0], None, None))


class TornLists(Yielding):
    async def list(self, prefix, **options):
        page = await super().list(prefix, **options)
        return Page(page.items[1:], page.revision, more=False)


@pytest.mark.parametrize(
    ("liar", "said"),
    [(StaleReads, "a stale read"), (LostEvents, "another story"), (TornLists, "a list of no moment")],
)
async def test_a_store_that_lies_is_found_out(liar, said):
    record, watched, start = await play(liar(), 1)
    with pytest.raises(AssertionError, match=said):
        check(record, watched, start)


async def test_the_checker_lets_an_honest_store_pass():
    check(*await play(Yielding(), 1))
