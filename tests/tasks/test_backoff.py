"""How long something that failed has to wait."""

import pytest

from podwire.tasks.backoff import Backoff


@pytest.fixture
def backoff():
    return Backoff(10.0, 300.0)


def test_the_first_retry_is_free(backoff):
    assert backoff.until("a", 100.0) == 100.0
    assert backoff.delay("a") == 0.0


def test_pauses_double_up_to_the_longest(backoff):
    pauses, now = [], 0.0
    for _ in range(8):
        backoff.tried("a", now)
        pauses.append(backoff.until("a", now) - now)
        now = backoff.until("a", now)
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]


def test_a_pause_counts_from_the_failure_not_from_the_start(backoff):
    backoff.tried("a", 0.0)
    assert backoff.until("a", 42.0) == 52.0


@pytest.mark.parametrize(
    ("ran", "until"),
    [
        pytest.param(600.0, 610.0, id="it ran as long as twice the longest pause"),
        pytest.param(600.1, 600.1, id="it ran longer: all is forgotten"),
    ],
)
def test_what_ran_well_for_long_starts_again_at_once(backoff, ran, until):
    backoff.tried("a", 0.0)
    assert backoff.until("a", ran) == until


def test_after_a_long_quiet_time_pauses_begin_anew(backoff):
    for _ in range(5):
        backoff.tried("a", 0.0)
    assert backoff.delay("a") == 160.0
    backoff.tried("a", 601.0)
    assert backoff.delay("a") == 10.0


def test_each_key_waits_for_itself(backoff):
    backoff.tried("a", 0.0)
    assert (backoff.until("a", 0.0), backoff.until("b", 0.0)) == (10.0, 0.0)


@pytest.mark.parametrize(
    ("cleared", "left"),
    [pytest.param("a", [0.0, 10.0], id="one"), pytest.param(None, [0.0, 0.0], id="all")],
)
def test_what_is_cleared_is_free_again(backoff, cleared, left):
    backoff.tried("a", 0.0)
    backoff.tried("b", 0.0)
    backoff.clear(cleared)
    assert [backoff.delay(letter) for letter in "ab"] == left


def test_a_time_of_its_own_to_forget():
    backoff = Backoff(1.0, 30.0, forget=5.0)
    backoff.tried("a", 0.0)
    assert backoff.until("a", 6.0) == 6.0
