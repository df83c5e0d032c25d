"""Seats and queues: who runs, who borrows, who waits, who is refused."""

import asyncio
import contextlib

import pytest

from podwire.apiserver.flowcontrol.levels import LevelSpec, Queuing, Seats, hand
from podwire.protocols.k8sapi.status import ApiError

QUEUES = Queuing(queues=8, hand=2, length=3)


def seats(*specs: LevelSpec, total: int = 10, wait: float = 30.0) -> Seats:
    made = Seats(total, wait)
    made.configure(specs)
    return made


def level(made: Seats, name: str):
    found = made.level(name)
    assert found is not None
    return found


async def take(made: Seats, name: str, number: int, flow: str = "f") -> None:
    for _ in range(number):
        async with asyncio.timeout(5):
            await made.acquire(level(made, name), flow)


async def is_refused(made: Seats, name: str, flow: str = "f") -> bool:
    try:
        await take(made, name, 1, flow)
    except ApiError as error:
        return (error.code, error.headers) == (429, (("Retry-After", "1"),))
    return False


def waiting(made: Seats, name: str, flow: str, log: list[str]) -> "asyncio.Task[None]":
    async def run() -> None:
        await made.acquire(level(made, name), flow)
        log.append(flow)

    return asyncio.create_task(run())


async def test_seats_are_shared_in_proportion_and_rounded_up():
    made = seats(LevelSpec(name="a", shares=2), LevelSpec(name="b", shares=1), total=10)
    assert [(part.spec.name, part.seats) for part in made.levels] == [("a", 7), ("b", 4)]


async def test_a_level_that_lends_nothing_always_has_its_seats():
    made = seats(LevelSpec(name="a", shares=1), LevelSpec(name="b", shares=1))
    await take(made, "a", 5)
    assert await is_refused(made, "a"), "the other five are kept"
    await take(made, "b", 5)


async def test_a_level_borrows_what_another_lends_and_that_one_gets_its_own_back():
    made = seats(LevelSpec(name="a", shares=1), LevelSpec(name="b", shares=1, lendable_percent=60))
    await take(made, "a", 8)
    assert await is_refused(made, "a"), "two of five are not lent"
    await take(made, "b", 5)
    assert level(made, "b").running == 5


async def test_borrowing_has_a_limit_of_its_own():
    spec = LevelSpec(name="a", shares=1, borrowing_percent=20)
    made = seats(spec, LevelSpec(name="b", shares=1, lendable_percent=100))
    await take(made, "a", 6)
    assert await is_refused(made, "a")


async def test_an_exempt_level_is_never_refused_and_takes_nothing_from_others():
    made = seats(LevelSpec(name="exempt", exempt=True), LevelSpec(name="a", shares=1), total=2)
    await take(made, "exempt", 100)
    await take(made, "a", 2)
    assert await is_refused(made, "a")


async def test_a_request_above_the_limit_waits_for_a_seat():
    made, log = seats(LevelSpec(name="a", shares=1, queuing=QUEUES), total=1), []
    await take(made, "a", 1)
    task = waiting(made, "a", "f", log)
    await asyncio.sleep(0)
    assert (log, level(made, "a").waiting) == ([], 1)
    made.release(level(made, "a"))
    await task
    assert (level(made, "a").running, level(made, "a").waiting) == (1, 0)


async def test_flows_take_turns_however_many_requests_one_of_them_has():
    made, log = seats(LevelSpec(name="a", shares=1, queuing=Queuing(queues=64, hand=1, length=50)), total=1), []
    await take(made, "a", 1)
    busy, quiet = different_flows(Queuing(queues=64, hand=1, length=50))
    tasks = [waiting(made, "a", busy, log) for _ in range(20)]
    await asyncio.sleep(0)
    tasks.append(waiting(made, "a", quiet, log))
    await asyncio.sleep(0)
    for _ in range(21):
        made.release(level(made, "a"))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert log.index(quiet) <= 1


def different_flows(queuing: Queuing) -> tuple[str, str]:
    first = "first"
    return first, next(
        name for name in map(str, range(1000)) if set(hand(name, queuing)).isdisjoint(hand(first, queuing))
    )


async def test_a_flow_that_fills_its_queues_is_refused_and_another_is_not():
    queuing = Queuing(queues=16, hand=2, length=3)
    made, log = seats(LevelSpec(name="a", shares=1, queuing=queuing), total=1), []
    busy, quiet = different_flows(queuing)
    await take(made, "a", 1)
    tasks = [waiting(made, "a", busy, log) for _ in range(6)]
    await asyncio.sleep(0)
    assert await is_refused(made, "a", busy)
    tasks.append(waiting(made, "a", quiet, log))
    await asyncio.sleep(0)
    assert level(made, "a").waiting == 7
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_request_that_waits_too_long_is_refused():
    made = seats(LevelSpec(name="a", shares=1, queuing=QUEUES), total=1, wait=0.02)
    await take(made, "a", 1)
    assert await is_refused(made, "a")
    made.release(level(made, "a"))
    await take(made, "a", 1)


async def test_a_cancelled_request_leaves_its_queue_and_a_granted_seat():
    made, log = seats(LevelSpec(name="a", shares=1, queuing=QUEUES), total=1), []
    await take(made, "a", 1)
    first, second = waiting(made, "a", "f", log), waiting(made, "a", "f", log)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert level(made, "a").waiting == 1
    made.release(level(made, "a"))
    second.cancel()  # its seat is granted, but it has not run yet
    with contextlib.suppress(asyncio.CancelledError):
        await second
    assert (level(made, "a").running, level(made, "a").waiting, log) == (0, 0, [])


async def test_a_freed_seat_is_lent_to_another_level_that_waits():
    made, log = (
        seats(
            LevelSpec(name="a", shares=1, lendable_percent=100),
            LevelSpec(name="b", shares=1, queuing=QUEUES),
            total=2,
        ),
        [],
    )
    await take(made, "a", 1)
    await take(made, "b", 1)
    task = waiting(made, "b", "f", log)
    await asyncio.sleep(0)
    assert log == []
    made.release(level(made, "a"))
    await task
    assert level(made, "b").running == 2


async def test_a_changed_level_keeps_its_requests_and_a_removed_one_refuses_those_that_wait():
    made, log = seats(LevelSpec(name="a", shares=1, queuing=QUEUES), total=1), []
    await take(made, "a", 1)
    task = waiting(made, "a", "f", log)
    await asyncio.sleep(0)
    old = level(made, "a")
    made.configure([LevelSpec(name="a", shares=1, queuing=QUEUES), LevelSpec(name="b", shares=1)])
    assert level(made, "a") is old
    made.configure([LevelSpec(name="b", shares=1)])
    with pytest.raises(ApiError, match="Too many requests"):
        await task
    made.release(old)
    await take(made, "b", 1)
    assert await is_refused(made, "b")


async def test_a_request_of_several_seats_waits_for_all_of_them_and_smaller_ones_wait_behind_it():
    made, log = seats(LevelSpec(name="a", shares=1, queuing=QUEUES), total=4), []
    await take(made, "a", 3)
    wide = asyncio.create_task(made.acquire(level(made, "a"), "f", 3))
    await asyncio.sleep(0)
    narrow = waiting(made, "a", "f", log)
    await asyncio.sleep(0)
    assert (level(made, "a").running, level(made, "a").waiting) == (3, 2), "one is free, and not for those behind"
    made.release(level(made, "a"), 2)
    await wide
    assert (level(made, "a").running, level(made, "a").waiting) == (4, 1)
    made.release(level(made, "a"), 3)
    await narrow
    assert (level(made, "a").running, level(made, "a").waiting) == (2, 0)


async def test_a_request_of_more_seats_than_its_level_has_runs_alone():
    made = seats(LevelSpec(name="a", shares=1, queuing=QUEUES), total=2)
    await made.acquire(level(made, "a"), "f", 5)
    task = asyncio.create_task(made.acquire(level(made, "a"), "f", 1))
    await asyncio.sleep(0)
    assert not task.done()
    made.release(level(made, "a"), 5)
    await task
    assert level(made, "a").running == 1


@pytest.mark.parametrize(("total", "widest"), [(4, 1), (20, 3), (600, 10)])
def test_one_request_takes_at_most_ten_seats_or_fifteen_percent_of_its_level(total, widest):
    assert level(seats(LevelSpec(name="a", shares=1), total=total), "a").widest == widest


@pytest.mark.parametrize(("queues", "size"), [(128, 6), (16, 4), (1, 1), (3, 3)])
def test_a_hand_has_different_queues_and_is_always_the_same(queues, size):
    queuing = Queuing(queues=queues, hand=size, length=1)
    for flow in map(str, range(50)):
        dealt = list(hand(flow, queuing))
        assert len(set(dealt)) == size
        assert all(0 <= card < queues for card in dealt)
        assert dealt == list(hand(flow, queuing))
