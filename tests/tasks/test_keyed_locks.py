"""Who waits for whom."""

import asyncio

from podwire.tasks.keyed_locks import Turns


async def test_one_at_a_time_for_each_key_and_others_go_on():
    turns, order = Turns(), []

    async def work(name, *keys):
        async with turns.of(keys):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(work("a", "x", "y"), work("b", "y", "x"), work("c", "z"))
    assert order.index("a ends") < order.index("b begins")
    assert order.index("c begins") < order.index("a ends")
    assert turns._locks == {}
