"""Reading stored objects that may lack anything: every function answers with the right type, whatever is there."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from podwire.objects.times import human_duration, parse

Json = Mapping[str, Any]
Row = Callable[[Json, float], list[Any]]
"""An object and the time to the cells of its row, wide ones included."""

Rows = Mapping[tuple[str, str], Row]
"""Rows by group and resource."""

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
INVALID = "<invalid>"

_EMPTY: Json = {}


def part(value: Json, *path: str) -> Json:
    """The object at the end of the path; an empty one where there is none."""
    for key in path:
        value = value.get(key, _EMPTY)
        if not isinstance(value, dict):
            return _EMPTY
    return value


def text(value: Json, key: str, default: str = "") -> str:
    found = value.get(key)
    return found if isinstance(found, str) and found else default


def shown(value: Json, key: str, default: str = "") -> str:
    """A quantity, port or other value that is a string or a number, as text."""
    found = value.get(key)
    if isinstance(found, str) and found:
        return found
    return str(found) if isinstance(found, int | float) and not isinstance(found, bool) else default


def number(value: Json, key: str, default: int = 0) -> int:
    found = value.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def flag(value: Json, key: str, *, default: bool = False) -> bool:
    found = value.get(key)
    return found if isinstance(found, bool) else default


def elements(value: Json, key: str) -> list[Json]:
    """The objects of a list; what is no object is left out."""
    found = value.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def strings(value: Json, key: str) -> list[str]:
    found = value.get(key)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def count(value: Json, key: str) -> int:
    """How many there are in a list or map."""
    found = value.get(key)
    return len(found) if isinstance(found, list | dict) else 0


def condition(value: Json, name: str) -> Json:
    """The first condition of that type, an empty one where there is none."""
    return next((each for each in elements(value, "conditions") if each.get("type") == name), _EMPTY)


def moment(value: Json, key: str) -> float | None:
    """A timestamp as seconds since the epoch; None where there is none that can be read."""
    found = value.get(key)
    if not isinstance(found, str):
        return None
    try:
        return parse(found)
    except ValueError:
        return None


def since(value: Json, key: str, now: float) -> str:
    """How long ago a timestamp was."""
    when = moment(value, key)
    return UNKNOWN if when is None else human_duration(now - when)


def name(obj: Json) -> str:
    return text(part(obj, "metadata"), "name")


def age(obj: Json, now: float) -> str:
    return since(part(obj, "metadata"), "creationTimestamp", now)


def deleted(obj: Json) -> bool:
    return bool(part(obj, "metadata").get("deletionTimestamp"))


def labels(value: Json, key: str) -> str:
    """A map of labels on one line."""
    pairs = sorted((k, v) for k, v in part(value, key).items() if isinstance(v, str))
    return ",".join(f"{k}={v}" for k, v in pairs) or NONE


def some(found: Iterable[str], limit: int, *, empty: str) -> str:
    """The first few of them, and how many more there are."""
    every = list(found)
    told = ",".join(every[:limit])
    if len(every) > limit:
        return f"{told} + {len(every) - limit} more..."
    return told or empty
