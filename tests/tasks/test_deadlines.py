"""Deadlines: many calls, one timer, the semantics of asyncio.timeout."""

import asyncio

import pytest

from podwire.tasks.deadlines import Deadlines
from tests.eventually import eventually_async

SOON = 0.02


async def test_a_call_that_takes_too_long_ends_with_a_timeout():
    with pytest.raises(TimeoutError), Deadlines(SOON).begin():
        await asyncio.Event().wait()


async def test_a_call_that_ends_in_time_is_not_disturbed_later():
    deadlines = Deadlines(SOON)
    with deadlines.begin():
        pass

    await asyncio.sleep(3 * SOON)

    assert asyncio.current_task().cancelling() == 0


async def test_each_call_has_its_own_deadline_though_there_is_one_timer():
    deadlines, ended = Deadlines(0.1), []

    async def call(name: str, seconds: float) -> None:
        try:
            with deadlines.begin():
                await asyncio.sleep(seconds)
            ended.append((name, "in time"))
        except TimeoutError:
            ended.append((name, "late"))

    async with asyncio.TaskGroup() as calls:
        calls.create_task(call("first", 10))
        await asyncio.sleep(0.05)
        calls.create_task(call("second", 0))
        calls.create_task(call("third", 10))

    assert ended == [("second", "in time"), ("first", "late"), ("third", "late")]


async def test_a_cancellation_from_outside_stays_a_cancellation():
    async def call() -> None:
        with Deadlines(10).begin():
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_after_the_deadline_is_the_error():
    async def call() -> None:
        with Deadlines(SOON).begin():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("while ending") from None

    with pytest.raises(ValueError, match="while ending"):
        await call()
    assert asyncio.current_task().cancelling() == 0


async def test_without_open_calls_there_is_no_timer():
    deadlines = Deadlines(SOON)
    with deadlines.begin():
        pass
    await eventually_async(lambda: deadlines._timer is None)


def test_deadlines_work_on_another_event_loop_too():
    deadlines = Deadlines(SOON)

    async def call() -> None:
        with deadlines.begin():
            await asyncio.Event().wait()

    for _ in range(2):
        with pytest.raises(TimeoutError):
            asyncio.run(call())
