"""Points in time as request bodies give them: checked as Go checks RFC 3339, written in UTC."""

import re
from datetime import UTC, datetime

from podwire.kinds.shape import TypeMismatch

_SECONDS = "2006-01-02T15:04:05Z07:00"
_MICROS = "2006-01-02T15:04:05.000000Z07:00"
_ZERO = "0001-01-01T00:00:00Z"
"""Go's zero time, which counts as unset."""

_ZONE = r"(Z|[+-]\d\d:\d\d)"
_DATE = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
_TIME_FORM = re.compile(_DATE + r"(?:[.,]\d+)?" + _ZONE, re.ASCII)
_MICRO_FORM = re.compile(_DATE + r"(\.\d{6})" + _ZONE, re.ASCII)
_CANONICAL_LENGTH = len(_ZERO)

_ELEMENTS = (
    ("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"),
    ("15", r"\d\d?"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d"),
)  # fmt: skip
"""The words of Go's layout before the fraction and the zone."""

_RANGES = (("month", 5, 1, 12), ("day", 8, 1, 31), ("hour", 11, 0, 23), ("minute", 14, 0, 59), ("second", 17, 0, 59))


def time(text: str) -> str | None:
    """Whole seconds; what is below is cut off. None for the zero time."""
    form = _TIME_FORM.fullmatch(text)
    if form is None:
        raise TypeMismatch(_unparsable(text, _SECONDS))
    try:
        moment = datetime.fromisoformat(form[1] + form[2])
        if len(text) != _CANONICAL_LENGTH:
            moment = moment.astimezone(UTC)
            text = moment.strftime("%Y-%m-%dT%H:%M:%SZ").zfill(_CANONICAL_LENGTH)
    except (ValueError, OverflowError):
        raise TypeMismatch(_out_of_range(text)) from None
    return text if text != _ZERO else None


def micro_time(text: str) -> str | None:
    """Six decimals, no more and no fewer: Go's layout asks for them. None for the zero time."""
    form = _MICRO_FORM.fullmatch(text)
    if form is None:
        raise TypeMismatch(_unparsable(text, _MICROS))
    try:
        moment = datetime.fromisoformat(form[1] + form[3]).astimezone(UTC)
    except (ValueError, OverflowError):
        raise TypeMismatch(_out_of_range(text)) from None
    date = moment.strftime("%Y-%m-%dT%H:%M:%S").zfill(_CANONICAL_LENGTH - 1)
    return f"{date}{form[2]}Z" if f"{date}{form[2]}" != f"{_ZERO[:-1]}.000000" else None


def _unparsable(text: str, layout: str) -> str:
    word, rest = _wrong_word(text, layout)
    if not word:
        return f'parsing time "{text}": extra text: "{rest}"'
    return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{word}"'


def _wrong_word(rest: str, layout: str) -> tuple[str, str]:
    """Returns the word of the layout that the text does not match, and the text from there; no word: there is more
    after it."""
    for word, pattern in _ELEMENTS:
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            return word, rest
        rest = rest[match.end() :]
    fraction = re.match(r"\.\d{6}" if layout == _MICROS else r"(?:[.,]\d+)?", rest, re.ASCII)
    if fraction is None:
        return ".000000", rest
    rest = rest[fraction.end() :]
    zone = re.match(_ZONE, rest, re.ASCII)
    return ("Z07:00", rest) if zone is None else ("", rest[zone.end() :])


def _out_of_range(text: str) -> str:
    for word, start, low, high in _RANGES:
        if not low <= int(text[start : start + 2]) <= high:
            return f'parsing time "{text}": {word} out of range'
    return f'parsing time "{text}": day out of range'
