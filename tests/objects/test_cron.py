"""Cron schedules: reading them, and when they come next."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects import cron
from podwire.objects.times import parse


def following(text, after, zone="", count=1):
    schedule, moment, times = cron.parse(text, cron.zone_of(zone)), parse(after), []
    for _ in range(count):
        moment = schedule.next(moment)
        times.append(None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    return times


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("*/15 * * * *", ["2026-07-09T15:00:00Z", "2026-07-09T15:15:00Z"]),
        ("5/20 * * * *", ["2026-07-09T15:05:00Z", "2026-07-09T15:25:00Z", "2026-07-09T15:45:00Z"]),
        ("0 9-17/4 * * mon-fri", ["2026-07-09T17:00:00Z", "2026-07-10T09:00:00Z", "2026-07-10T13:00:00Z"]),
        ("30 4 1,15 * FRI", ["2026-07-10T04:30:00Z", "2026-07-15T04:30:00Z", "2026-07-17T04:30:00Z"]),
        ("30 4 1,15 * *", ["2026-07-15T04:30:00Z", "2026-08-01T04:30:00Z"]),
        ("30 4 */10 * FRI", ["2026-07-10T04:30:00Z", "2026-07-11T04:30:00Z", "2026-07-17T04:30:00Z"]),
        ("0 0 ? jan,Dec ?", ["2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00Z"]),
        ("0 0 31 4 *", [None]),
        ("@hourly", ["2026-07-09T15:00:00Z"]),
        ("@daily", ["2026-07-10T00:00:00Z"]),
        ("@midnight", ["2026-07-10T00:00:00Z"]),
        ("@weekly", ["2026-07-12T00:00:00Z"]),
        ("@monthly", ["2026-08-01T00:00:00Z"]),
        ("@yearly", ["2027-01-01T00:00:00Z"]),
        ("@every 1h30m", ["2026-07-09T16:15:00Z"]),
        ("@every 1ms", ["2026-07-09T14:45:01Z"]),
        ("TZ=Asia/Tokyo 0 9 * * *", ["2026-07-10T00:00:00Z"]),
    ],
)
def test_schedules_come_next(text, times):
    assert following(text, "2026-07-09T14:45:00Z", count=len(times)) == times


def test_a_time_that_the_clocks_skip_never_comes():
    assert following("30 2 * * *", "2026-03-28T12:00:00Z", "Europe/Berlin") == ["2026-03-30T00:30:00Z"]


def test_a_time_that_the_clocks_show_twice_comes_twice():
    times = following("30 1 * * *", "2026-11-01T00:00:00Z", "America/New_York", 3)
    assert times == ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]


@given(
    st.sampled_from(["Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata", "UTC", "Australia/Sydney"]),
    st.integers(1_500_000_000, 1_900_000_000),
    st.integers(0, 59),
    st.integers(0, 23),
)
def test_the_next_time_is_the_first_minute_at_which_the_clock_shows_it(zone, after, minute, hour):
    schedule = cron.parse(f"{minute} {hour} * * *", cron.zone_of(zone))
    moment = schedule.next(after)
    shown = datetime.fromtimestamp(moment, schedule.zone)
    assert moment > after
    assert (shown.hour, shown.minute, shown.second) == (hour, minute, 0)
    earlier = datetime.fromtimestamp(after, UTC).replace(second=0) + timedelta(minutes=1)
    while earlier.timestamp() < moment:
        local = earlier.astimezone(schedule.zone)
        assert (local.hour, local.minute) != (hour, minute)
        earlier += timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("9-5 * * * *", "beginning of range (9) beyond end of range (5): 9-5"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("hello * * * *", 'failed to parse int from hello: strconv.Atoi: parsing "hello": invalid syntax'),
        ("* mon * * *", 'failed to parse int from mon: strconv.Atoi: parsing "mon": invalid syntax'),
        ("@reboot", "unrecognized descriptor: @reboot"),
        ("@every soon", 'failed to parse duration @every soon: time: invalid duration "soon"'),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        ("TZ=Mars/Base 0 * * * *", "provided bad location Mars/Base: unknown time zone Mars/Base"),
    ],
)
def test_an_invalid_schedule_is_refused_in_the_words_of_upstream(text, why):
    with pytest.raises(ValueError, match=r"^") as caught:
        cron.parse(text)
    assert str(caught.value) == why
