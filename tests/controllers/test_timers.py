"""Alarms ring after time awake, and only then."""

import asyncio

import pytest

from podwire.controllers.timers import BEAT, LONGEST, Alarms


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
def alarms(clock, rung):
    return Alarms(clock, rung.append)


def pass_(clock, alarms, seconds):
    """Time passes, and the process is awake all the time."""
    for _ in range(round(seconds)):
        clock.now += 1
        alarms.look()


def test_an_alarm_rings_once_when_its_time_has_come(clock, alarms, rung):
    alarms.set("a", alarms.now() + 3)
    pass_(clock, alarms, 2)
    assert rung == []
    pass_(clock, alarms, 5)
    assert rung == ["a"]


def test_alarms_ring_in_order(clock, alarms, rung):
    for key, seconds in (("late", 30), ("soon", 5), ("between", 10)):
        alarms.set(key, alarms.now() + seconds)
    pass_(clock, alarms, 30)
    assert rung == ["soon", "between", "late"]


def test_setting_an_alarm_anew_replaces_it(clock, alarms, rung):
    alarms.set("a", alarms.now() + 3)
    pass_(clock, alarms, 2)
    alarms.set("a", alarms.now() + 3)
    pass_(clock, alarms, 2)
    assert rung == []
    pass_(clock, alarms, 1)
    assert rung == ["a"]


def test_a_cancelled_alarm_does_not_ring(clock, alarms, rung):
    alarms.set("a", alarms.now() + 3)
    alarms.cancel("a")
    alarms.cancel("never set")
    pass_(clock, alarms, 10)
    assert rung == []
    assert alarms.look() is None


def test_time_in_which_the_process_was_stopped_does_not_count(clock, alarms, rung):
    alarms.set("a", alarms.now() + 40)
    pass_(clock, alarms, 10)
    clock.now += 3600
    alarms.look()
    assert rung == []
    pass_(clock, alarms, 40 - 10 - LONGEST - 1)
    assert rung == []
    pass_(clock, alarms, 1)
    assert rung == ["a"]


def test_somebody_looks_often_enough_to_tell_sleep_from_waiting(clock, alarms):
    assert alarms.look() is None
    alarms.set("a", alarms.now() + 100)
    assert alarms.look() == BEAT < LONGEST
    alarms.set("b", alarms.now() + 2)
    assert alarms.look() == 2


def test_what_rings_may_be_set_again_by_whoever_hears_it(clock):
    count = 0

    def ring(key):
        nonlocal count
        count += 1
        alarms.set(key, alarms.now() + 5)

    alarms = Alarms(clock, ring)
    alarms.set("a", alarms.now() + 5)
    pass_(clock, alarms, 25)
    assert count == 5


async def test_a_sooner_alarm_wakes_the_one_who_waits(clock):
    rung = asyncio.Event()
    alarms = Alarms(clock, lambda _key: rung.set())
    task = asyncio.create_task(alarms.run())
    try:
        alarms.set("far", 1000.0)
        await asyncio.sleep(0)
        alarms.set("now", 0.0)
        async with asyncio.timeout(20):
            await rung.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
