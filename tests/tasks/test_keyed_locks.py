"""Locks by key."""

import asyncio

from podwire.tasks.keyed_locks import KeyedLocks


async def test_a_key_has_one_holder_and_other_keys_go_on():
    locks, order = KeyedLocks(), []

    async def work(name, *keys):
        async with locks.hold(*keys):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(work("a", "x", "y"), work("b", "y", "x"), work("c", "z"))
    assert order.index("a ends") < order.index("b begins")
    assert order.index("c begins") < order.index("a ends")
    assert not any(locks.is_held(key) for key in "xyz")
    assert locks._locks == {}


async def test_a_task_that_is_cancelled_while_it_waits_leaves_no_lock():
    locks = KeyedLocks()
    async with locks.hold("x"):
        waiting = asyncio.ensure_future(locks.hold("x").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert locks.is_held("x")
    assert locks._locks == {}
