"""Work queues: each key once, in one hand, again after a failure."""

import asyncio
import contextlib
import itertools

import pytest

from podwire.controllers.work_queue import NotYet, WorkQueue
from podwire.protocols.k8sapi.client_side import Unreachable
from podwire.protocols.k8sapi.status import ApiError, Reason


@contextlib.asynccontextmanager
async def working(queue: WorkQueue):
    task = asyncio.create_task(queue.run())
    try:
        async with asyncio.timeout(30):
            yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_key_that_is_added_twice_is_worked_on_once():
    done = []

    async def work(key: str) -> None:
        done.append(key)

    queue = WorkQueue("test", work)
    for key in ("a", "b", "a"):
        queue.add(key)
    async with working(queue):
        await asyncio.sleep(0.02)
    assert sorted(done) == ["a", "b"]


async def test_a_key_added_while_in_hand_is_worked_on_again_but_never_by_two():
    in_hand, most, done = 0, 0, 0
    go_on = asyncio.Event()

    async def work(_key: str) -> None:
        nonlocal in_hand, most, done
        in_hand += 1
        most = max(most, in_hand)
        await go_on.wait()
        in_hand -= 1
        done += 1

    queue = WorkQueue("test", work, workers=4)
    queue.add("a")
    async with working(queue):
        await asyncio.sleep(0.01)
        queue.add("a")
        queue.add("a")
        await asyncio.sleep(0.01)
        go_on.set()
        await asyncio.sleep(0.01)
    assert (most, done) == (1, 2)


async def test_keys_are_worked_on_side_by_side():
    both = asyncio.Barrier(2)

    async def work(_key: str) -> None:
        await both.wait()

    queue = WorkQueue("test", work, workers=2)
    queue.add("a")
    queue.add("b")
    async with working(queue):
        await asyncio.sleep(0.02)
    assert not both.broken
    assert both.n_waiting == 0


@pytest.mark.parametrize(
    "failure",
    [
        NotYet(),
        ApiError(Reason.CONFLICT, "changed"),
        Unreachable("down"),
        ZeroDivisionError("a bug"),
    ],
    ids=["not yet", "refused", "no answer", "a bug"],
)
async def test_a_failure_is_tried_again_with_growing_pauses(failure):
    times = []
    done = asyncio.Event()

    async def work(_key: str) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 4:
            raise failure
        done.set()

    queue = WorkQueue("test", work, chance=lambda: 0.0)
    queue.add("a")
    async with working(queue):
        await done.wait()
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[0] >= 0.02
    assert pauses[1] >= 0.045
    assert pauses[2] >= 0.09


async def test_news_do_not_wait_for_the_pause():
    calls = 0
    done = asyncio.Event()

    async def work(_key: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 8:
            done.set()
        raise NotYet

    queue = WorkQueue("test", work, chance=lambda: 1.0)
    queue.add("a")
    async with working(queue):
        while calls < 8:
            queue.add("a")
            await asyncio.sleep(0)
        await done.wait()
