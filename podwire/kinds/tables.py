"""Tables as kubectl prints them, rendered by the server: column definitions, and readers for the cells of a row.

The readers take stored objects that may lack anything or have anything anywhere: each returns the right type, whatever
it reads, so that no object can break a list.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from podwire.objects import selectors
from podwire.objects.times import human_duration, parse

Json = Mapping[str, Any]
Row = Callable[[Json, float], list[Any]]
"""Gives the cells of an object at a time, those for `-o wide` included."""

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
INVALID = "<invalid>"
_EMPTY: Json = {}

_DESCRIPTIONS = {
    "Age": "How long ago the object was created.",
    "Containers": "The names of the template's containers.",
    "Created At": "When the object was created.",
    "Images": "The images of the template's containers.",
    "Name": "The name of the object, unique in its namespace.",
    "Restarts": "How often the pod's containers came back, and how long ago the last one did.",
    "Selector": "The labels that select the pods.",
    "Status": "Where the object is in its life.",
}


def part(value: Json, *path: str) -> Json:
    """Returns the object at the end of the path; an empty one where there is none."""
    for key in path:
        value = value.get(key, _EMPTY)
        if not isinstance(value, dict):
            return _EMPTY
    return value


def text(value: Json, key: str, default: str = "") -> str:
    content = value.get(key)
    return content if isinstance(content, str) and content else default


def shown(value: Json, key: str, default: str = "") -> str:
    """Returns a quantity, port or other value that is a string or a number, as text."""
    content = value.get(key)
    if isinstance(content, str) and content:
        return content
    return str(content) if isinstance(content, int | float) and not isinstance(content, bool) else default


def number(value: Json, key: str, default: int = 0) -> int:
    content = value.get(key)
    return content if isinstance(content, int) and not isinstance(content, bool) else default


def flag(value: Json, key: str, *, default: bool = False) -> bool:
    content = value.get(key)
    return content if isinstance(content, bool) else default


def elements(value: Json, key: str) -> list[Json]:
    """Returns the objects of a list; elements that are not objects are left out."""
    content = value.get(key)
    return [element for element in content if isinstance(element, dict)] if isinstance(content, list) else []


def strings(value: Json, key: str) -> list[str]:
    content = value.get(key)
    return [element for element in content if isinstance(element, str)] if isinstance(content, list) else []


def count(value: Json, key: str) -> int:
    """Returns the number of elements of a list or map."""
    content = value.get(key)
    return len(content) if isinstance(content, list | dict) else 0


def condition(value: Json, kind: str) -> Json:
    """Returns the first condition of that type, an empty one where there is none."""
    return next((entry for entry in elements(value, "conditions") if entry.get("type") == kind), _EMPTY)


def moment(value: Json, key: str) -> float | None:
    """Returns a timestamp as seconds since the epoch; None where there is none that can be read."""
    content = value.get(key)
    if not isinstance(content, str):
        return None
    try:
        return parse(content)
    except ValueError:
        return None


def since(value: Json, key: str, now: float) -> str:
    """Returns the age of a timestamp."""
    when = moment(value, key)
    return UNKNOWN if when is None else human_duration(now - when)


def name_of(obj: Json) -> str:
    return text(part(obj, "metadata"), "name")


def age_of(obj: Json, now: float) -> str:
    return since(part(obj, "metadata"), "creationTimestamp", now)


def is_deleted(obj: Json) -> bool:
    return bool(part(obj, "metadata").get("deletionTimestamp"))


def label_text(value: Json, key: str) -> str:
    """Returns a map of labels on one line."""
    pairs = sorted((k, v) for k, v in part(value, key).items() if isinstance(v, str))
    return ",".join(f"{k}={v}" for k, v in pairs) or NONE


def first_few(texts: Iterable[str], limit: int, *, empty: str) -> str:
    """Returns the first few of them, and how many more there are."""
    every = list(texts)
    shown_first = ",".join(every[:limit])
    if len(every) > limit:
        return f"{shown_first} + {len(every) - limit} more..."
    return shown_first or empty


def selector_text(value: Json, key: str, *, empty: str = NONE, broken: str = "<error>") -> str:
    """Returns the label selector under `key`."""
    chosen = part(value, key)
    cleaned = {
        "matchLabels": {
            label: label_value
            for label, label_value in part(chosen, "matchLabels").items()
            if isinstance(label_value, str)
        },
        "matchExpressions": [
            {
                "key": text(expression, "key"),
                "operator": text(expression, "operator"),
                "values": strings(expression, "values"),
            }
            for expression in elements(chosen, "matchExpressions")
        ],
    }
    try:
        return str(selectors.from_object(cleaned)) or empty
    except ValueError:
        return broken


def column_definitions(columns: str) -> list[dict[str, Any]]:
    """Returns the TableColumnDefinitions of columns written as `Name|Desired#|Suspend?|IP*` (`Strategy.columns`)."""
    definitions = []
    for column in columns.split("|"):
        name = column.rstrip("*#?")
        marks = column[len(name) :]
        definitions.append(
            {
                "name": name,
                "type": "date"
                if name == "Created At"
                else "integer"
                if "#" in marks
                else "boolean"
                if "?" in marks
                else "string",
                "format": "name" if name == "Name" else "",
                "description": _DESCRIPTIONS.get(name, ""),
                "priority": 1 if "*" in marks else 0,
            }
        )
    return definitions


def plain_row(obj: Json, _now: float) -> list[Any]:
    """Returns the row of a kind without columns of its own: name and creation."""
    return [name_of(obj), text(part(obj, "metadata"), "creationTimestamp")]


def named_row(obj: Json, now: float) -> list[Any]:
    """Returns the row of a kind that shows its name and age only."""
    return [name_of(obj), age_of(obj, now)]
