"""The forms of parameter fields. A form reads a JSON value, or raises Refused with the field's path."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.dradriver.claims.allocations import Refused

TAKEN_BACK = None
"""The value of a field that is null: the same as if the field were absent."""


# What is said of a value that is of no use; the admission policy says the same.
NO_FLAG = "must be true or false"
NO_NUMBER = "must be a whole number"
NO_TEXT = "must be text"
NO_LIST = "must be a list"
NO_OBJECT = "must be an object"
NO_SWITCHES = "must be an object of names and true or false"
REQUIRED = "is required"
UNKNOWN = "is not a field"
AGAIN = "repeats what"


@dataclass(frozen=True, slots=True)
class Flag:
    def read(self, value: Any, at: str) -> bool:
        if not isinstance(value, bool):
            raise Refused(at, f"{NO_FLAG}, not {shown(value)}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """From `low` to `high`, but for some; each of those with its reason."""

    low: int
    high: int
    but: Mapping[int, str] = field(default_factory=dict)

    @property
    def range(self) -> str:
        return f"must be from {self.low} to {self.high}"

    def read(self, value: Any, at: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused(at, f"{NO_NUMBER}, not {shown(value)}")
        if not self.low <= value <= self.high:
            raise Refused(at, f"{self.range}, not {value}")
        if value in self.but:
            raise Refused(at, self.but[value])
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of a few words or numbers."""

    of: tuple[str | int, ...]

    @property
    def choices(self) -> str:
        return f"must be one of {', '.join(map(str, self.of))}"

    def read(self, value: Any, at: str) -> str | int:
        if isinstance(value, bool) or not isinstance(value, str | int) or value not in self.of:
            raise Refused(at, f"{self.choices}, not {shown(value)}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text that `parse` understands."""

    parse: Callable[[str], Any]

    def read(self, value: Any, at: str) -> Any:
        if not isinstance(value, str):
            raise Refused(at, f"{NO_TEXT}, not {shown(value)}")
        try:
            return self.parse(value)
        except ValueError as error:
            raise Refused(at, f"{shown(value)} {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """A list of texts, none of them twice; `key` is what makes two the same."""

    parse: Callable[[str], Any]
    most: int
    key: Callable[[Any], Any] = str

    def read(self, value: Any, at: str) -> tuple[Any, ...]:
        form = Text(parse=self.parse)
        items = _items(value, at, self.most)
        return _unlike([form.read(item, f"{at}[{i}]") for i, item in enumerate(items)], self.key, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A list of groups, none of them twice; `make` turns what one says into a value, or raises Clash."""

    fields: "Mapping[str, Leaf]"
    required: tuple[str, ...]
    make: Callable[[dict[str, Any]], Any]
    key: Callable[[Any], Any]
    most: int

    def read(self, value: Any, at: str) -> tuple[Any, ...]:
        items = _items(value, at, self.most)
        return _unlike([self._entry(item, f"{at}[{i}]") for i, item in enumerate(items)], self.key, at)

    def _entry(self, value: Any, at: str) -> Any:
        """Nothing is merged into an entry, so null there is the same as nothing."""
        said = {
            name: self.fields[name].read(item, f"{at}.{name}")
            for name, item in known(value, self.fields, at)
            if item is not None
        }
        for name in self.required:
            if name not in said:
                raise Refused(f"{at}.{name}", REQUIRED)
        try:
            return self.make(said)
        except Clash as clash:
            raise Refused(f"{at}.{clash.field}", clash.reason) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Names, and whether each is on. `expand` gives the names that one stands for."""

    parse: Callable[[str], str]
    most: int
    expand: Callable[[str], tuple[str, ...]] = lambda name: (name,)

    def items(self, value: Any, at: str) -> Iterator[tuple[str, bool | None]]:
        if not isinstance(value, dict):
            raise Refused(at, f"{NO_SWITCHES}, not {shown(value)}")
        if len(value) > self.most:
            raise Refused(at, f"{at_most(self.most)}, not {len(value)}")
        seen: dict[str, str] = {}
        for name, switch in value.items():
            inner = f"{at}[{name}]"
            Text(parse=self.parse).read(name, inner)
            on = switch if switch is None else Flag().read(switch, inner)
            for member in self.expand(name):
                if seen.setdefault(member, name) != name:
                    raise Refused(inner, f"is {member}, of which {seen[member]} speaks already")
                yield member, on


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    fields: "Mapping[str, Form]"


Leaf = Flag | Number | Choice | Text | Texts | Entries
Form = Leaf | Switches | Group


class Clash(Exception):
    """Two fields of one entry that cannot both be."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field, self.reason = field, reason


def at_most(entries: int) -> str:
    return f"must have at most {entries} entries"


def known(value: Any, fields: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    """Yields the fields of an object; a value that is not an object and an unknown field are refused."""
    if not isinstance(value, dict):
        raise Refused(at, f"{NO_OBJECT}, not {shown(value)}")
    for name, item in value.items():
        if name not in fields:
            raise Refused(f"{at}.{name}", f"{UNKNOWN}{_meant(name, fields)}")
        yield name, item


def shown(value: Any) -> str:
    """A value as people see it in their manifest, not too long."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value[:60]}…"' if len(value) > 60 else f'"{value}"'
        case int() | float():
            return str(value)[:40]
        case list():
            return "a list"
        case _:
            return "an object"


def _meant(name: str, fields: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, fields, 1) or [field for field in fields if field.lower() == name.lower()]
    return f"; {close[0]} may be meant" if close else f"; known are {', '.join(sorted(fields))}"


def _items(value: Any, at: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(at, f"{NO_LIST}, not {shown(value)}")
    if len(value) > most:
        raise Refused(at, f"{at_most(most)}, not {len(value)}")
    return value


def _unlike(values: list[Any], key: Callable[[Any], Any], at: str) -> tuple[Any, ...]:
    seen: dict[Any, int] = {}
    for i, value in enumerate(values):
        first = seen.setdefault(key(value), i)
        if first != i:
            raise Refused(f"{at}[{i}]", f"{AGAIN} {at.rpartition('.')[2]}[{first}] says")
    return tuple(values)
