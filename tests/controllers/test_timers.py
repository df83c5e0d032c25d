"""Alarms ring after time awake, and only then."""

import asyncio

import pytest

from podwire.controllers.timers import MAX_STEP, MAX_WAIT, Timers


class MovableClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def rung():
    return []


@pytest.fixture
def timers(clock, rung):
    return Timers(clock, rung.append)


def pass_(clock, timers, seconds):
    """Time passes, and the process is awake all the time."""
    for _ in range(round(seconds)):
        clock.now += 1
        timers.fire_due()


def test_an_alarm_rings_once_when_its_time_has_come(clock, timers, rung):
    timers.set("a", timers.now() + 3)
    pass_(clock, timers, 2)
    assert rung == []
    pass_(clock, timers, 5)
    assert rung == ["a"]


def test_alarms_ring_in_order(clock, timers, rung):
    for key, seconds in (("late", 30), ("soon", 5), ("between", 10)):
        timers.set(key, timers.now() + seconds)
    pass_(clock, timers, 30)
    assert rung == ["soon", "between", "late"]


def test_setting_an_alarm_again_replaces_it(clock, timers, rung):
    timers.set("a", timers.now() + 3)
    pass_(clock, timers, 2)
    timers.set("a", timers.now() + 3)
    pass_(clock, timers, 2)
    assert rung == []
    pass_(clock, timers, 1)
    assert rung == ["a"]


def test_a_cancelled_alarm_does_not_ring(clock, timers, rung):
    timers.set("a", timers.now() + 3)
    timers.cancel("a")
    timers.cancel("never set")
    pass_(clock, timers, 10)
    assert rung == []
    assert timers.fire_due() is None


def test_time_in_which_the_process_was_stopped_does_not_count(clock, timers, rung):
    timers.set("a", timers.now() + 40)
    pass_(clock, timers, 10)
    clock.now += 3600
    timers.fire_due()
    assert rung == []
    pass_(clock, timers, 40 - 10 - MAX_STEP - 1)
    assert rung == []
    pass_(clock, timers, 1)
    assert rung == ["a"]


def test_timers_wake_often_enough_to_notice_a_suspend(clock, timers):
    assert timers.fire_due() is None
    timers.set("a", timers.now() + 100)
    assert timers.fire_due() == MAX_WAIT < MAX_STEP
    timers.set("b", timers.now() + 2)
    assert timers.fire_due() == 2


def test_an_expired_alarm_may_be_set_again_by_its_handler(clock):
    count = 0

    def on_due(key):
        nonlocal count
        count += 1
        timers.set(key, timers.now() + 5)

    timers = Timers(clock, on_due)
    timers.set("a", timers.now() + 5)
    pass_(clock, timers, 25)
    assert count == 5


async def test_an_earlier_alarm_wakes_the_waiter(clock):
    rung = asyncio.Event()
    timers = Timers(clock, lambda _key: rung.set())
    task = asyncio.create_task(timers.run())
    try:
        timers.set("far", 1000.0)
        await asyncio.sleep(0)
        timers.set("now", 0.0)
        async with asyncio.timeout(20):
            await rung.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
