"""When pods are checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.runtime.cni.check_schedule import Schedule, ScheduledCheck, finish
from podwire.runtime.cni.limits import CniLimits

LIMITS = CniLimits()
CALM, GAP, PATIENCE = LIMITS.calm, LIMITS.gap, LIMITS.patience
MINUTE = Schedule(60.0)

IDS = st.text(min_size=1, max_size=64)
TIMES = st.floats(0, 1e7)
INTERVALS = st.floats(0.1, 3600)


@given(IDS, TIMES, INTERVALS)
def test_a_pod_is_checked_once_per_interval(id_, now, interval):
    first = Schedule(interval).next_time(id_, now)
    assert now < first <= now + interval * 1.011
    assert Schedule(interval).next_time(id_, first) - first == pytest.approx(interval, rel=0.001, abs=1e-6)


@given(IDS, TIMES, st.floats(0, 0.9), INTERVALS)
def test_the_check_time_does_not_depend_on_when_the_pod_was_attached(id_, now, later, interval):
    one, other = (
        Schedule(interval).next_time(id_, now),
        Schedule(interval).next_time(id_, now + later * interval),
    )
    steps = (other - one) / interval
    assert steps == pytest.approx(round(steps), abs=1e-3)


def test_many_pods_are_spread_evenly():
    times = [MINUTE.next_time(f"pod{number}", 1000.0) for number in range(600)]
    counts = [sum(at <= time % 60 < at + 10 for time in times) for at in range(0, 60, 10)]
    assert all(70 < count < 130 for count in counts)


@pytest.mark.parametrize(
    ("check", "now", "due"),
    [
        pytest.param(ScheduledCheck(50.0), 10.0, 10.0, id="at once, if it was never checked"),
        pytest.param(ScheduledCheck(50.0, checked=1.0), 10.0, 10.0, id="at once, if it was checked a while ago"),
        pytest.param(
            ScheduledCheck(50.0, checked=9.9), 10.0, 9.9 + GAP, id="a moment later, if it was checked just now"
        ),
        pytest.param(
            ScheduledCheck(50.0, checked=9.9, idle=2), 10.0, 9.9 + 4 * GAP, id="later, if changes mean nothing"
        ),
        pytest.param(ScheduledCheck(50.0, checked=9.9, idle=50), 10.0, 50.0, id="in check at the latest"),
        pytest.param(
            ScheduledCheck(50.0, checked=1.0, idle=2), 1.0 + CALM + 5, 1.0 + CALM + 5, id="at once again after a calm"
        ),
        pytest.param(ScheduledCheck(5.0, checked=1.0), 10.0, 5.0, id="no later than it was due anyway"),
    ],
)
def test_a_change_moves_the_check_forward(check, now, due):
    MINUTE.hint(check, now)
    assert check.hinted
    assert check.due == pytest.approx(due)


def test_constant_irrelevant_changes_cost_one_check_per_interval():
    """Something that changes all the time, such as another program's routes."""
    check, schedule, checks, now = ScheduledCheck(0.0), MINUTE, [], 0.0
    while now < 3600:
        schedule.hint(check, now)
        if schedule.starts_at(check, 0.0) <= now:
            checks.append(now)
            finish(check, hinted=schedule.begin(check, "pod", now), changed=False)
        now += 0.25
    assert len([check for check in checks if check >= 600]) <= 3000 / schedule.interval + 2


def test_a_change_during_a_check_counts_for_the_next():
    check = ScheduledCheck(1.0)
    assert not MINUTE.begin(check, "pod", 1.0)
    MINUTE.hint(check, 1.1)
    finish(check, hinted=False, changed=False)
    assert (check.hinted, check.due) == (True, 1.0 + GAP)


@pytest.mark.parametrize(
    ("check", "quiet", "at"),
    [
        pytest.param(ScheduledCheck(10.0), 5.0, 10.0, id="nobody is attached"),
        pytest.param(ScheduledCheck(10.0), 12.0, 12.0, id="it waits while others are attached"),
        pytest.param(ScheduledCheck(10.0), 99.0, 10.0 + PATIENCE, id="but not for ever"),
        pytest.param(ScheduledCheck(10.0, hinted=True), 12.0, 10.0, id="and not when it changed"),
    ],
)
def test_a_periodic_check_waits_while_pods_are_attached(check, quiet, at):
    assert MINUTE.starts_at(check, quiet) == at
