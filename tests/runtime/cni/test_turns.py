"""When pods are checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.runtime.cni import check_schedule
from podwire.runtime.cni.check_schedule import CALM, GAP, PATIENCE, ScheduledCheck

IDS = st.text(min_size=1, max_size=64)
TIMES = st.floats(0, 1e7)
INTERVALS = st.floats(0.1, 3600)


@given(IDS, TIMES, INTERVALS)
def test_a_turn_comes_once_in_the_interval(id_, now, interval):
    first = check_schedule.next_turn(id_, now, interval)
    assert now < first <= now + interval * 1.011
    assert check_schedule.next_turn(id_, first, interval) - first == pytest.approx(interval, rel=0.001, abs=1e-6)


@given(IDS, TIMES, st.floats(0, 0.9), INTERVALS)
def test_a_turn_does_not_depend_on_when_the_pod_came(id_, now, later, interval):
    one, other = (
        check_schedule.next_turn(id_, now, interval),
        check_schedule.next_turn(id_, now + later * interval, interval),
    )
    steps = (other - one) / interval
    assert steps == pytest.approx(round(steps), abs=1e-3)


def test_many_pods_are_spread_evenly():
    times = [check_schedule.next_turn(f"pod{each}", 1000.0, 60.0) for each in range(600)]
    counts = [sum(at <= each % 60 < at + 10 for each in times) for at in range(0, 60, 10)]
    assert all(70 < each < 130 for each in counts)


@pytest.mark.parametrize(
    ("turn", "now", "due"),
    [
        pytest.param(ScheduledCheck(50.0), 10.0, 10.0, id="at once, if it was never checked"),
        pytest.param(ScheduledCheck(50.0, checked=1.0), 10.0, 10.0, id="at once, if it was checked a while ago"),
        pytest.param(
            ScheduledCheck(50.0, checked=9.9), 10.0, 9.9 + GAP, id="a moment later, if it was checked just now"
        ),
        pytest.param(
            ScheduledCheck(50.0, checked=9.9, idle=2), 10.0, 9.9 + 4 * GAP, id="later, if changes mean nothing"
        ),
        pytest.param(ScheduledCheck(50.0, checked=9.9, idle=50), 10.0, 50.0, id="in turn at the latest"),
        pytest.param(
            ScheduledCheck(50.0, checked=1.0, idle=2), 1.0 + CALM + 5, 1.0 + CALM + 5, id="at once again after a calm"
        ),
        pytest.param(ScheduledCheck(5.0, checked=1.0), 10.0, 5.0, id="no later than it was due anyway"),
    ],
)
def test_a_change_has_it_checked(turn, now, due):
    check_schedule.hint(turn, now, 60.0)
    assert turn.hinted
    assert turn.due == pytest.approx(due)


def test_changes_that_never_mean_anything_cost_no_more_than_one_check_in_the_interval():
    """Something that changes all the time, such as another program's routes."""
    turn, interval, checks, now = ScheduledCheck(0.0), 60.0, [], 0.0
    while now < 3600:
        check_schedule.hint(turn, now, interval)
        if check_schedule.starts_at(turn, 0.0) <= now:
            checks.append(now)
            check_schedule.found(turn, check_schedule.begin(turn, "pod", now, interval), news=False)
        now += 0.25
    assert len([each for each in checks if each >= 600]) <= 3000 / interval + 2


def test_a_change_while_it_is_checked_counts_for_the_next_time():
    turn = ScheduledCheck(1.0)
    assert not check_schedule.begin(turn, "pod", 1.0, 60.0)
    check_schedule.hint(turn, 1.1, 60.0)
    check_schedule.found(turn, False, news=False)
    assert (turn.hinted, turn.due) == (True, 1.0 + GAP)


@pytest.mark.parametrize(
    ("turn", "quiet", "at"),
    [
        pytest.param(ScheduledCheck(10.0), 5.0, 10.0, id="nobody is attached"),
        pytest.param(ScheduledCheck(10.0), 12.0, 12.0, id="it waits while others are attached"),
        pytest.param(ScheduledCheck(10.0), 99.0, 10.0 + PATIENCE, id="but not for ever"),
        pytest.param(ScheduledCheck(10.0, hinted=True), 12.0, 10.0, id="and not when it changed"),
    ],
)
def test_a_check_in_turn_is_not_in_the_way_of_pods_that_start(turn, quiet, at):
    assert check_schedule.starts_at(turn, quiet) == at
