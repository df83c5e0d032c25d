"""Types as ownership sees them: where a value can be owned in parts, and the path elements of the parts.

    Leaf       a scalar, or a list or object that is owned as a whole (atomic)
    Struct     an object with named members
    MapOf      an object with members of any name
    ListMap    a list whose elements have keys (x-kubernetes-list-type: map): each element is owned by its key
    SetList    a list of distinct scalars (x-kubernetes-list-type: set): each element is owned by its value
    Deduced    of unknown type: an object is owned member by member, a list as a whole

Types refer to each other in circles, so a Struct computes its members on first use. Every write walks types, so plain
attributes (`by_member`, `by_element`) say how they are owned.
"""

from collections.abc import Callable, Mapping
from typing import Any, Union, cast

import msgspec

MOST_KNOWN, LONG = 1000, 100
"""Names of elements and members that a type remembers, and how long one of them may be."""
MOST_FRAMES = 100
"""Combinations of members that a type remembers."""

_encode = msgspec.json.Encoder(order="sorted").encode


class Leaf:
    """A value that is owned as a whole; `scalar` is its required type: string, number, boolean, or empty."""

    __slots__ = ("scalar",)
    by_member = by_element = False

    def __init__(self, scalar: str = "") -> None:
        self.scalar = scalar


class _Known(dict[str, "tuple[str, Type | None]"]):
    """The path element and the type of members by name, None for what is none; found out when first asked for.

    Every write looks up all of its members, and the same names recur.
    """

    __slots__ = ("_of",)

    def __init__(self, of: "Members") -> None:
        super().__init__()
        self._of = of

    def __missing__(self, name: str) -> "tuple[str, Type | None]":
        entry = (f"f:{name}", self._of.member(name))
        if len(self) < MOST_KNOWN and len(name) < LONG:
            self[name] = entry
        return entry


class MapOf:
    """An object with members of any name and one type."""

    __slots__ = ("known", "values")
    by_member, by_element = True, False

    def __init__(self, values: "Type") -> None:
        self.values = values
        self.known = _Known(self)

    def member(self, _name: str) -> "Type":
        return self.values

    def names(self, _name: str) -> bool:
        """No member is named by the schema: each is owned when it is set."""
        return False


class Struct:
    """An object with named members; `others` is the type of those that are not named, if there may be any."""

    __slots__ = ("_find", "_members", "frames", "known", "others")
    by_member, by_element = True, False

    def __init__(self, find: Callable[[], Mapping[str, "Type"]], others: "Type | None" = None) -> None:
        self._find = find
        self._members: Mapping[str, Type] | None = None
        self.known = _Known(self)
        self.frames: dict[tuple[str, ...], Frame] = {}
        self.others = others

    @property
    def members(self) -> Mapping[str, "Type"]:
        if self._members is None:
            self._members = self._find()
        return self._members

    def member(self, name: str) -> "Type | None":
        return (self._members or self.members).get(name, self.others)

    def names(self, name: str) -> bool:
        return name in self.members


class Deduced:
    """A value of unknown type."""

    __slots__ = ("known",)
    by_member, by_element = True, False

    def __init__(self) -> None:
        self.known = _Known(self)

    def member(self, _name: str) -> "Type":
        return self

    def names(self, _name: str) -> bool:
        return False


class ListMap:
    """A list whose elements are identified by `keys`; a key that is left out has its default."""

    __slots__ = ("_known", "defaults", "element", "keys")
    by_member, by_element = False, True

    def __init__(self, keys: tuple[str, ...], element: "Type", defaults: Mapping[str, Any] | None = None) -> None:
        self.keys = keys
        self.element = element
        self.defaults = defaults or {}
        self._known: dict[str, str] = {}

    def name(self, item: Any) -> str:
        """Returns the path element of an element; raises BadElement."""
        if type(item) is dict and type(value := item.get(self.keys[0])) is str and len(self.keys) == 1:
            return self._known.get(value) or self._remembered(value)
        return self._named(item)

    def _remembered(self, value: str) -> str:
        """Caches keys such as the names of containers and conditions, which recur."""
        name = f"k:{_encode({self.keys[0]: value}).decode()}"
        if len(self._known) < MOST_KNOWN and len(value) < LONG:
            self._known[value] = name
        return name

    def _named(self, item: Any) -> str:
        if type(item) is not dict:
            what = "a null element" if item is None else "non-map elements"
            raise BadElement(f"associative list with keys may not have {what}")
        key_values = {key: item[key] if key in item else self.defaults[key]
                 for key in self.keys if key in item or key in self.defaults}  # fmt: skip
        if not key_values:
            listed = " ".join(f'"{key}"' for key in self.keys)
            raise BadElement(
                f"associative list with keys has an element that omits all key fields [{listed}]"
                " (and doesn't have default values for any key fields)"
            )
        return f"k:{_encode(key_values).decode()}"


class SetList:
    """A list of scalars, each of which is there once."""

    __slots__ = ("element",)
    by_member, by_element = False, True

    def __init__(self, element: "Type") -> None:
        self.element = element

    def name(self, item: Any) -> str:
        if isinstance(item, dict):
            raise BadElement("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise BadElement("not supported: associative list with lists as elements")
        if item is None:
            raise BadElement("associative list without keys has an element that's an explicit null")
        return f"v:{_encode(item).decode()}"


class BadElement(Exception):
    """An element of a list that has no key, or no scalar value, to identify it."""


Members = MapOf | Struct | Deduced
Elements = ListMap | SetList
Type = Union[Leaf, Members, Elements]  # noqa: UP007 - the classes above name it before it is there

Frame = tuple[dict[str, Any], tuple[tuple[str, str, Type], ...]]
"""Objects with certain members: the set of these, and by name, path element and type those that have more below."""

LEAF = Leaf()
DEDUCED = Deduced()


def members_of(of: Type, value: Any) -> Members | None:
    """Returns the type by which the members of a value are owned one by one; None when they are not."""
    return cast("Members", of) if of.by_member and type(value) is dict else None


def elements_of(of: Type, value: Any) -> Elements | None:
    """Returns the type by which the elements of a value are owned one by one; None when they are not."""
    return cast("Elements", of) if of.by_element and type(value) is list else None


def shown(path: tuple[str, ...]) -> str:
    """Returns a path as people read it: `.spec.containers[name="c"].image`."""
    return "".join(_shown(element) for element in path)


def _shown(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "k:":
        keys: dict[str, Any] = msgspec.json.decode(text)
        return "[" + ",".join(f"{name}={_encode(keys[name]).decode()}" for name in sorted(keys)) + "]"
    return f"[={text}]" if kind == "v:" else f"[{text}]"
