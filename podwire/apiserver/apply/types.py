"""What ownership needs to know of a value: where it can be owned in parts, and what its parts are called.

    Leaf       a scalar, or a list or object that is owned as a whole (atomic)
    Struct     an object with named members
    MapOf      an object with members of any name
    ListMap    a list whose elements are told apart by some of their members
    SetList    a list of scalars, each of which is there once
    Deduced    whatever it turns out to be: an object is owned member by member, a list as a whole

Types refer to each other in circles, so the members of a Struct are found out when they are first asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import msgspec

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Leaf:
    """Owned as a whole; `scalar` says what it must be: string, number, boolean, or nothing in particular."""

    scalar: str = ""


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with members of any name and one type."""

    values: "Type"

    def member(self, _name: str) -> "Type":
        return self.values

    def names(self, _name: str) -> bool:
        """No member is there by name: each is owned as it comes."""
        return False


class Struct:
    """An object with named members; `others` is the type of those that are not named, if there may be any."""

    __slots__ = ("_find", "_members", "others")

    def __init__(self, find: Callable[[], Mapping[str, "Type"]], others: "Type | None" = None) -> None:
        self._find = find
        self._members: Mapping[str, Type] | None = None
        self.others = others

    @property
    def members(self) -> Mapping[str, "Type"]:
        if self._members is None:
            self._members = self._find()
        return self._members

    def member(self, name: str) -> "Type | None":
        return self.members.get(name, self.others)

    def names(self, name: str) -> bool:
        return name in self.members


class Deduced:
    """Whatever comes."""

    __slots__ = ()

    def member(self, _name: str) -> "Type":
        return self

    def names(self, _name: str) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ListMap:
    """A list whose elements are told apart by `keys`; a key that is left out has its default."""

    keys: tuple[str, ...]
    element: "Type"
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def name(self, item: Any) -> str:
        """The path element of an element; raises BadElement."""
        if not isinstance(item, dict):
            what = "a null element" if item is None else "non-map elements"
            raise BadElement(f"associative list with keys may not have {what}")
        found = {key: item.get(key, self.defaults.get(key)) for key in self.keys if key in item or key in self.defaults}
        if not found:
            listed = " ".join(f'"{key}"' for key in self.keys)
            raise BadElement(
                f"associative list with keys has an element that omits all key fields [{listed}]"
                " (and doesn't have default values for any key fields)"
            )
        return f"k:{_encode(found).decode()}"


@dataclass(frozen=True, slots=True)
class SetList:
    """A list of scalars, each of which is there once."""

    element: "Type"

    def name(self, item: Any) -> str:
        if isinstance(item, dict):
            raise BadElement("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise BadElement("not supported: associative list with lists as elements")
        if item is None:
            raise BadElement("associative list without keys has an element that's an explicit null")
        return f"v:{_encode(item).decode()}"


class BadElement(Exception):
    """An element of a list that cannot be told from the others."""


Members = MapOf | Struct | Deduced
Elements = ListMap | SetList
Type = Union[Leaf, Members, Elements]  # noqa: UP007 - the classes above name it before it is there

LEAF = Leaf()
DEDUCED = Deduced()


def members_of(of: Type, value: Any) -> Members | None:
    """How the members of a value are owned one by one; None when they are not."""
    return of if isinstance(value, dict) and isinstance(of, MapOf | Struct | Deduced) else None


def elements_of(of: Type, value: Any) -> Elements | None:
    """How the elements of a value are owned one by one; None when they are not."""
    return of if isinstance(value, list) and isinstance(of, ListMap | SetList) else None


def shown(path: tuple[str, ...]) -> str:
    """A path as people read it: `.spec.containers[name="c"].image`."""
    return "".join(_shown(each) for each in path)


def _shown(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "k:":
        keys: dict[str, Any] = msgspec.json.decode(text)
        return "[" + ",".join(f"{name}={_encode(keys[name]).decode()}" for name in sorted(keys)) + "]"
    return f"[={text}]" if kind == "v:" else f"[{text}]"
