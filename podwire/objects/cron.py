"""Cron schedules: five fields, names, steps and descriptors, in a time zone. Pure.

The errors are those of the parser that upstream uses (robfig/cron), since they are part of validation messages.
"""

import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
YEARS_AHEAD = 5
"""A schedule without a time in so many years has none."""

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"([0-9]*\.?[0-9]*)(ns|us|µs|μs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0


_MINUTE, _HOUR, _DAY = _Bounds(0, 59), _Bounds(0, 23), _Bounds(1, 31)
_MONTH, _WEEKDAY = _Bounds(1, 12, MONTHS, 1), _Bounds(0, 6, WEEKDAYS, 0)


@dataclass(frozen=True, slots=True)
class _Field:
    values: frozenset[int]
    star: bool
    """Written as `*`: with a day of the month, only one of two days needs to match unless one is a star."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times at which the clocks of a zone show one of the given minutes, hours and days.

    A time that the clocks skip never comes; one that they show twice comes twice, as upstream's.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: _Field
    months: frozenset[int]
    weekdays: _Field
    zone: tzinfo = UTC

    def next(self, after: float) -> float | None:
        """Returns the first time after a moment, in seconds since the epoch; None if there is none."""
        start = datetime.fromtimestamp(int(after // 1) + 1, self.zone)
        day, last_year = start.date(), start.year + YEARS_AHEAD
        while day.year <= last_year:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._has_day(day) and (found := self._on(day, after)) is not None:
                return found
            day += timedelta(days=1)
        return None

    def _has_day(self, day: date) -> bool:
        in_month, in_week = day.day in self.days.values, day.isoweekday() % 7 in self.weekdays.values
        if self.days.star or self.weekdays.star:
            return in_month and in_week
        return in_month or in_week

    def _on(self, day: date, after: float) -> float | None:
        """Returns the first time of a day after a moment."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        following = day + timedelta(days=1)
        end = datetime(following.year, following.month, following.day, tzinfo=self.zone)
        shifts = midnight.utcoffset() != end.utcoffset()
        found: list[float] = []
        for hour in self.hours:
            for minute in self.minutes:
                for fold in (0, 1) if shifts else (0,):
                    shown = midnight.replace(hour=hour, minute=minute, fold=fold)
                    moment = shown.timestamp()
                    back = datetime.fromtimestamp(moment, self.zone)
                    if moment > after and (back.hour, back.minute) == (hour, minute):
                        if not shifts:
                            return moment
                        found.append(moment)
        return min(found, default=None)


@dataclass(frozen=True, slots=True)
class Every:
    """A constant interval in whole seconds (`@every 90s`)."""

    seconds: int

    def next(self, after: float) -> float | None:
        return float(int(after // 1) + self.seconds)


def parse(text: str, zone: tzinfo = UTC) -> Schedule | Every:
    """Returns a schedule; raises ValueError. A prefix `TZ=` or `CRON_TZ=` overrides the zone."""
    if not text:
        raise ValueError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        name, _, text = text.partition("=")[2].partition(" ")
        try:
            zone = zone_of(name)
        except ValueError as error:
            raise ValueError(f"provided bad location {name}: {error}") from error
        text = text.strip()
    if text.startswith("@every "):
        return Every(max(1, int(_duration(text))))
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ValueError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minute, hour, day, month, weekday = (
        _field(field, bounds) for field, bounds in zip(fields, (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY), strict=True)
    )
    return Schedule(tuple(sorted(minute.values)), tuple(sorted(hour.values)), day, month.values, weekday, zone)


def zone_of(name: str) -> tzinfo:
    """Returns the zone of a name of the IANA database; an empty name is UTC. Raises ValueError."""
    if name in ("", "UTC"):
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {name}") from error


def _field(text: str, bounds: _Bounds) -> _Field:
    values: set[int] = set()
    star = False
    for part in filter(None, text.split(",")):
        listed, is_star = _range(part, bounds)
        values |= listed
        star |= is_star
    return _Field(frozenset(values), star)


def _range(text: str, bounds: _Bounds) -> tuple[set[int], bool]:
    span, *steps = text.split("/")
    ends = span.split("-")
    star = ends[0] in ("*", "?")
    if star:
        start, end = bounds.low, bounds.high
    else:
        start = end = _number(ends[0], bounds)
        if len(ends) == 2:
            end = _number(ends[1], bounds)
        elif len(ends) > 2:
            raise ValueError(f"too many hyphens: {text}")
    step = 1
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {text}")
    if steps:
        step = _number(steps[0], None)
        if len(ends) == 1:  # `5/15` begins at 5 and has no other end
            end = bounds.high
        star = star and step <= 1
    for is_wrong, why in (
        (start < bounds.low, f"beginning of range ({start}) below minimum ({bounds.low})"),
        (end > bounds.high, f"end of range ({end}) above maximum ({bounds.high})"),
        (start > end, f"beginning of range ({start}) beyond end of range ({end})"),
        (step == 0, "step of range should be a positive number"),
    ):
        if is_wrong:
            raise ValueError(f"{why}: {text}")
    return set(range(start, end + 1, step)), star


def _number(text: str, bounds: _Bounds | None) -> int:
    if bounds is not None and text.lower() in bounds.names:
        return bounds.names.index(text.lower()) + bounds.first_name
    if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if len(text) > 18:
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    number = int(text)
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number


def _duration(descriptor: str) -> float:
    text = descriptor.removeprefix("@every ")
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    seconds, place = 0.0, 0
    while place < len(rest):
        part = _DURATION_PART.match(rest, place)
        if part is None or part[1] in ("", "."):
            break
        seconds += float(part[1]) * _UNITS[part[2]]
        place = part.end()
    if not rest or place < len(rest):
        unit = bool(re.fullmatch(r"[0-9.]+", rest))
        why = f'time: missing unit in duration "{text}"' if unit else f'time: invalid duration "{text}"'
        raise ValueError(f"failed to parse duration {descriptor}: {why}")
    return sign * seconds
