import asyncio
import time

from podwire.tasks.slices import Turns, in_slices


async def test_other_tasks_run_while_a_long_loop_goes_on():
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    items = []
    async for item in in_slices(range(64), seconds=0.001):
        time.sleep(0.0005)  # noqa: ASYNC251 - the work of the loop
        items.append(item)
    other.cancel()
    assert items == list(range(64))
    assert turns >= 3


async def test_other_tasks_run_after_each_item_that_takes_long():
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    async for _item in in_slices(range(8), seconds=0.001):
        time.sleep(0.002)  # noqa: ASYNC251 - the work of the loop
    other.cancel()
    assert turns >= 7


async def test_a_short_loop_is_not_interrupted():
    turns = 0

    async def count() -> None:
        nonlocal turns
        turns += 1

    other = asyncio.create_task(count())
    assert [item async for item in in_slices(range(100), seconds=60)] == list(range(100))
    assert turns == 0
    await other


async def test_other_tasks_get_their_turn_while_many_items_arrive():
    turns, others = Turns(seconds=0.001), 0

    async def count() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    for _item in range(8):
        time.sleep(0.002)  # noqa: ASYNC251 - the work of the loop
        await turns.next()
    other.cancel()
    assert others >= 7


async def test_a_turn_that_is_not_over_does_not_wait():
    turns, others = Turns(seconds=60), 0

    async def count() -> None:
        nonlocal others
        others += 1

    other = asyncio.create_task(count())
    for _item in range(100):
        await turns.next()
    assert others == 0
    await other
