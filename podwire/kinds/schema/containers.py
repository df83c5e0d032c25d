"""Objects, lists and maps of the built-in kinds, decoded as Go's structs would and shown as Go would show them.

This is the hot path of every write: one loop over the members that were sent, no path built for a scalar, no error
handling until something is wrong. Normal form is what Go prints after decoding: nulls are absent, empty members that
are left out when empty are gone, objects and required members that Go always shows are there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from podwire.kinds.schema.scalars import BOOLEAN, STRING, Mismatch, Read, Scalar, refuse_depth
from podwire.kinds.shape import Field, Report, Shape

MOST_REPORTED = 100
"""Unknown fields that one body can have reported, as upstream."""


class Type(Shape, Protocol):
    """A shape that can be part of others. Its `read` is never given null."""

    @property
    def go_type(self) -> str: ...

    @property
    def read(self) -> Read: ...

    @property
    def zero(self) -> Callable[[], Any]:
        """The zero value that Go shows; None for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """A property of an object and how it is kept."""

    name: str
    type: Type
    keep_empty: bool
    always: bool
    """Shown even when not given."""
    merge_key: str = ""
    strategies: frozenset[str] = frozenset()


class _Known:
    """A member as the loop wants it."""

    __slots__ = ("deep", "field", "keep_empty", "plain", "read")

    def __init__(self, member: Member) -> None:
        of = member.type
        self.plain: type | None = str if of is STRING else bool if of is BOOLEAN else None
        self.deep = not isinstance(of, Scalar)
        self.read = of.read
        self.keep_empty = member.keep_empty
        self.field = Field(of, member.merge_key, member.strategies)


class Struct:
    """An object with named members, computed for the first value: types refer to each other in circles."""

    __slots__ = ("_always", "_known", "_members", "go_type", "name")

    element: Shape | None = None

    def __init__(self, go_type: str, members: Callable[[], Iterable[Member]]) -> None:
        self.go_type = go_type
        self.name = go_type.rpartition(".")[2]
        self._members = members
        self._known: dict[str, _Known] | None = None
        self._always: tuple[tuple[str, Callable[[], Any]], ...] = ()

    def decode(self, value: Any, path: str, report: Report) -> Any:
        try:
            return self.zero() if value is None else self.read(value, path, report)
        except Mismatch as mismatch:
            mismatch.under(path)
            raise

    def read(self, value: Any, path: str, report: Report) -> Any:
        if type(value) is not dict:
            raise Mismatch(value, self.go_type)
        known = self._known or self._compiled()
        dot = f"{path}." if path else ""
        shown: dict[str, Any] = {}
        name = ""
        try:
            for name, item in value.items():
                member = known.get(name)
                if member is None:
                    _report_unknown(f"{dot}{name}", report)
                    continue
                if item is None:
                    continue
                if type(item) is not member.plain:
                    item = member.read(item, f"{dot}{name}" if member.deep else "", report)  # noqa: PLW2901 - hot loop
                if item or member.keep_empty:
                    shown[name] = item
        except Mismatch as mismatch:
            mismatch.inside(self.name, name)
            raise
        for name, zero in self._always:
            if name not in shown:
                shown[name] = zero()
        return shown

    def zero(self) -> Any:
        if self._known is None:
            self._compiled()
        return {name: zero() for name, zero in self._always}

    def field(self, name: str) -> Field | None:
        known = (self._known or self._compiled()).get(name)
        return known.field if known else None

    def _compiled(self) -> dict[str, _Known]:
        members = tuple(self._members())
        self._always = tuple((member.name, member.type.zero) for member in members if member.always)
        self._known = {member.name: _Known(member) for member in members}
        return self._known


def _report_unknown(path: str, report: Report) -> None:
    if len(report.unknown) < MOST_REPORTED:
        report.unknown.append(path)


class ListOf:
    """A list; a null in it is the zero of its elements."""

    __slots__ = ("_deep", "_plain", "element", "go_type")

    zero = list

    def __init__(self, element: Type) -> None:
        self.element: Type = element
        self.go_type = f"[]{element.go_type}"
        self._plain = element is STRING
        self._deep = not isinstance(element, Scalar)

    def decode(self, value: Any, path: str, report: Report) -> Any:
        return self.zero() if value is None else self.read(value, path, report)

    def read(self, value: Any, path: str, report: Report) -> Any:
        if type(value) is not list:
            raise Mismatch(value, self.go_type)
        if self._plain and _all_strings(value):
            return value.copy()
        read, zero = self.element.read, self.element.zero
        if self._deep:
            return [
                zero() if item is None else read(item, f"{path}[{index}]", report) for index, item in enumerate(value)
            ]
        return [zero() if item is None else read(item, "", report) for item in value]

    def field(self, name: str) -> Field | None:  # noqa: ARG002 - a Shape's signature
        return None


class MapOf:
    """An object with members of any name and one type."""

    __slots__ = ("_deep", "_field", "_plain", "_values", "go_type")

    element: Shape | None = None
    zero = dict

    def __init__(self, values: Type) -> None:
        self._values = values
        self.go_type = f"map[string]{values.go_type}"
        self._plain = values is STRING
        self._deep = not isinstance(values, Scalar)
        self._field = Field(values)

    def decode(self, value: Any, path: str, report: Report) -> Any:
        return self.zero() if value is None else self.read(value, path, report)

    def read(self, value: Any, path: str, report: Report) -> Any:
        if type(value) is not dict:
            raise Mismatch(value, self.go_type)
        if self._plain and _all_strings(value.values()):
            return value.copy()
        read, zero = self._values.read, self._values.zero
        if self._deep:
            dot = f"{path}." if path else ""
            return {
                name: zero() if item is None else read(item, f"{dot}{name}", report) for name, item in value.items()
            }
        return {name: zero() if item is None else read(item, "", report) for name, item in value.items()}

    def field(self, name: str) -> Field | None:  # noqa: ARG002 - every name is a member
        return self._field


def _all_strings(values: Iterable[Any]) -> bool:
    for value in values:  # noqa: SIM110 - twice as fast as all() with a generator
        if type(value) is not str:
            return False
    return True


class Bounded:
    """A recursive type, entered from outside: the depth of a value is checked before it is walked."""

    __slots__ = ("_type", "go_type", "zero")

    element: Shape | None = None

    def __init__(self, recursive: Type) -> None:
        self._type = recursive
        self.go_type = recursive.go_type
        self.zero = recursive.zero

    def decode(self, value: Any, path: str, report: Report) -> Any:
        refuse_depth(value)
        return self._type.decode(value, path, report)

    def read(self, value: Any, path: str, report: Report) -> Any:
        refuse_depth(value)
        return self._type.read(value, path, report)

    def field(self, name: str) -> Field | None:
        return self._type.field(name)


class Either:
    """Several JSON types, chosen by the value: a schema or a boolean, a schema or a list of them.

    Go's own decoders of these do not report what they do not know, so nothing under them is reported.
    """

    __slots__ = ("_by_type", "go_type")

    element: Shape | None = None

    def __init__(self, go_type: str, by_type: dict[type, Type]) -> None:
        self.go_type = go_type
        self._by_type = by_type

    def decode(self, value: Any, path: str, report: Report) -> Any:
        return self.zero() if value is None else self.read(value, path, report)

    def read(self, value: Any, path: str, report: Report) -> Any:  # noqa: ARG002 - see above
        type_ = self._by_type.get(type(value))
        if type_ is None:
            raise Mismatch(value, self.go_type)
        return type_.read(value, path, Report())

    def zero(self) -> None:
        return None

    def field(self, name: str) -> Field | None:
        objects = self._by_type.get(dict)
        return objects.field(name) if objects else None
