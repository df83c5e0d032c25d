"""Times and ages look as kubectl and client-go expect them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects import times

HOUR, DAY, YEAR = 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (80.9, "80s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (5 * HOUR + 600, "5h10m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR + 60, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (3 * DAY + 4 * HOUR, "3d4h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY + HOUR, "8d"),
        (400 * DAY, "400d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + 35 * DAY, "2y35d"),
        (8 * YEAR + DAY, "8y"),
    ],
)
def test_an_age_is_shown_as_kubectl_shows_it(seconds, shown):
    assert times.human_duration(seconds) == shown


def test_times_are_written_in_utc():
    assert times.rfc3339(0) == "1970-01-01T00:00:00Z"
    assert times.rfc3339(1700000000.9) == "2023-11-14T22:13:20Z"
    assert times.rfc3339_micro(1700000000.25) == "2023-11-14T22:13:20.250000Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("1970-01-01T00:00:00.5Z", 0.5),
        ("1970-01-01T00:00:00.123456789Z", 0.123456789),
    ],
)
def test_a_time_is_read_with_its_zone_and_fraction(text, seconds):
    assert times.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "now", "2024-01-01", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00", "2024-13-01T00:00:00Z"]
)
def test_an_invalid_time_is_rejected(text):
    with pytest.raises(ValueError):
        times.parse(text)


@given(st.integers(min_value=0, max_value=4_000_000_000))
def test_reading_undoes_writing(seconds):
    assert times.parse(times.rfc3339(seconds)) == seconds


@given(st.integers(min_value=0, max_value=4_000_000_000_000_000))
def test_reading_undoes_writing_to_the_microsecond(micros):
    assert round(times.parse(times.rfc3339_micro(micros / 1_000_000)) * 1_000_000) == micros
