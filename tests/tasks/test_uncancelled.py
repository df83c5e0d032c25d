"""Work that runs to completion although its caller is cancelled."""

import asyncio
import logging
import threading

import pytest

from podwire.tasks.uncancelled import Uncancelled, thread_to_completion, to_completion


async def cancelled_after_a_step(coroutine):
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0.01)
    task.cancel()
    return task


async def test_work_goes_on_when_its_caller_is_cancelled():
    done, go = [], asyncio.Event()

    async def work():
        await go.wait()
        done.append(1)

    uncancelled = Uncancelled()
    task = await cancelled_after_a_step(uncancelled.run(work()))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == []
    go.set()
    await uncancelled.drain(1.0)
    assert done == [1]


async def test_results_and_errors_reach_a_caller_that_waits():
    async def fail():
        raise ValueError("no")

    uncancelled = Uncancelled()
    assert await uncancelled.run(asyncio.sleep(0, 42)) == 42
    with pytest.raises(ValueError, match="no"):
        await uncancelled.run(fail())


@pytest.mark.parametrize("how", ["run", "to_completion"])
async def test_an_error_after_the_caller_left_is_logged(how, caplog):
    async def fail():
        await asyncio.sleep(0.03)
        raise ValueError("too late")

    uncancelled = Uncancelled()
    task = await cancelled_after_a_step(uncancelled.run(fail()) if how == "run" else to_completion(fail()))
    with pytest.raises(asyncio.CancelledError):
        await task
    await uncancelled.drain(1.0)
    assert [record.message for record in caplog.records] == ["work failed after its caller was cancelled"]


async def test_drain_cancels_what_does_not_end(caplog):
    caplog.set_level(logging.WARNING)
    uncancelled = Uncancelled()
    task = await cancelled_after_a_step(uncancelled.run(asyncio.sleep(60)))
    with pytest.raises(asyncio.CancelledError):
        await task
    await uncancelled.drain(0.01)
    assert [record.message for record in caplog.records] == ["cancelled unfinished work at shutdown"]
    await uncancelled.drain(0.01)


async def test_a_cancelled_caller_waits_for_a_thread_however_often_it_is_cancelled():
    release, ended = threading.Event(), []

    def work():
        release.wait(10)
        ended.append(1)

    task = await cancelled_after_a_step(thread_to_completion(work))
    for _ in range(3):
        await asyncio.sleep(0.01)
        task.cancel()
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1]


async def test_work_that_is_cancelled_itself_cancels_its_caller():
    async def work():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await to_completion(work())
