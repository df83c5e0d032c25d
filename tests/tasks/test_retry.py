"""Retries with back-off; no test sleeps."""

import pytest

from podwire.tasks.backoff import Pauses
from podwire.tasks.retry import retry


def failing(times, error=ConnectionError):
    left = [times]

    async def action():
        if left[0]:
            left[0] -= 1
            raise error("down")
        return "up"

    return action


async def test_pauses_double_until_the_action_succeeds():
    slept, reported = [], []

    async def sleep(seconds):
        slept.append(seconds)

    pauses = Pauses(1.0, 5.0)
    on_failure = lambda error, pause: reported.append((str(error), pause))  # noqa: E731 - a recorder
    assert await retry(failing(4), pauses, ConnectionError, on_failure=on_failure, sleep=sleep) == "up"
    assert slept == [1.0, 2.0, 4.0, 5.0]
    assert reported == [("down", pause) for pause in slept]
    assert pauses.next() == 1.0, "success starts anew"


async def test_other_errors_and_the_last_attempt_are_raised():
    async def sleep(_seconds):
        pass

    with pytest.raises(KeyError):
        await retry(failing(1, KeyError), Pauses(1, 1), ConnectionError, sleep=sleep)
    with pytest.raises(ConnectionError):
        await retry(failing(3), Pauses(1, 1), ConnectionError, attempts=3, sleep=sleep)
    assert await retry(failing(2), Pauses(1, 1), ConnectionError, attempts=3, sleep=sleep) == "up"


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_jitter_shortens_pauses_by_its_part_at_most(chance, pause):
    assert Pauses(1, 8, jitter=0.5, random=lambda: chance).next() == pause


def test_pauses_of_an_action_that_fails_for_ever_stay_the_longest():
    pauses = Pauses(0.1, 30)
    assert [pauses.next() for _ in range(2000)][-1] == 30
