"""Following a prefix of the store."""

import asyncio

import pytest

from podwire.apiserver.read.informer import follow
from podwire.protocols.storage import Gone, SlowWatcher, StoreUnavailable
from podwire.store.memory import MemoryStore


class BreakingStore(MemoryStore):
    """A store whose first watch ends as configured."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def watch(self, prefix, *, after):
        watch = super().watch(prefix, after=after)
        if self.end is not None:
            self._broadcaster.end(watch, self.end, drop=True)
            self.end = None
        return watch


@pytest.mark.parametrize("end", [Gone(1, 2), SlowWatcher("slow"), StoreUnavailable("away")])
async def test_after_a_broken_watch_the_informer_lists_again(end):
    store, reported = BreakingStore(end), asyncio.Queue()
    await store.create("/registry/a/x", b"1")

    async def seen(items):
        reported.put_nowait([item.key for item in items])

    async def changed(change):
        reported.put_nowait(change.key)

    following = asyncio.create_task(follow(store, "/registry/a/", seen, changed, retry=0.0))
    try:
        async with asyncio.timeout(30):
            assert [await reported.get(), await reported.get()] == [["/registry/a/x"]] * 2
            await store.create("/registry/a/y", b"1")
            assert await reported.get() == "/registry/a/y"
    finally:
        following.cancel()
