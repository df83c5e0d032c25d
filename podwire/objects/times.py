"""Times as the API writes them (RFC 3339 in UTC) and durations as kubectl prints ages."""

import re
import time
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])(\d\d):(\d\d))",
    re.ASCII,
)

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY


def rfc3339(seconds: float) -> str:
    """Whole seconds: creationTimestamp and every other Time."""
    return _formatted(int(seconds // 1))


@lru_cache(maxsize=16)
def _formatted(second: int) -> str:
    """Cached, because many writes happen in one second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def rfc3339_micro(seconds: float) -> str:
    """Six decimals: Lease times and every other MicroTime."""
    micros = round(seconds * 1_000_000)
    whole, fraction = divmod(micros, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{fraction:06d}Z"


def parse(text: str) -> float:
    """Seconds since the epoch; raises ValueError."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse')
    year, month, day, hour, minute, second = (int(group) for group in found.groups()[:6])
    fraction, sign, hours, minutes = found.groups()[6:]
    zone = UTC
    if sign:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        zone = timezone(-offset if sign == "-" else offset)
    moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    return moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def human_duration(seconds: float) -> str:
    """Two or three significant figures: 80s, 2m30s, 5h10m, 3d4h, 400d, 2y35d."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"  # clocks may differ by a second, not by more
    if whole < 2 * MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * MINUTE:
        return _two(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _two(whole, HOUR, "h", MINUTE, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    if whole < 8 * DAY:
        return _two(whole, DAY, "d", HOUR, "h")
    if whole < 2 * YEAR:
        return f"{whole // DAY}d"
    if whole < 8 * YEAR:
        return _two(whole, YEAR, "y", DAY, "d")
    return f"{whole // YEAR}y"


def _two(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    whole, rest = divmod(seconds, large)
    rest //= small
    return f"{whole}{large_unit}{rest}{small_unit}" if rest else f"{whole}{large_unit}"
