"""Rejects rules that depend on the order of a list that has none.

Lists of type set and map are equal in any order upstream. CEL here compares in order, which is right for the most
common comparison, `self.x == oldSelf.x`: the old list is given in the new one's order (`correlation`). Every other
comparison of such a list, and adding to one, would give a wrong result and is rejected.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from podwire.kinds.crds.cel_types import escape
from podwire.protocols.cel.syntax import Call, Comprehension, Const, Ident, Made, Node, Select, binds

Json = Mapping[str, Any]

COMPARED = "lists of type set or map can be compared with what they were before only; use sets.equivalent() or a macro"
ADDED = "lists of type set or map cannot be added; use a macro"


@dataclass(frozen=True, slots=True)
class _From:
    """The known facts of a value: its schema, and its path from `self` or `oldSelf`, if it has one."""

    schema: Any = None
    root: str = ""
    path: tuple[str, ...] = ()

    def into(self, schema: Any, step: str = "") -> "_From":
        return _From(schema, self.root, (*self.path, step)) if step and self.root else _From(schema)

    @property
    def unordered(self) -> bool:
        return isinstance(self.schema, dict) and _has_unordered(_Same(self.schema))

    def counterpart(self, other: "_From") -> bool:
        return bool(self.root and other.root) and self.root != other.root and self.path == other.path


_UNKNOWN = _From()
Scope = Mapping[str, _From]


def misuses(root: Node, schema: Json) -> Iterator[tuple[Node, str]]:
    """Yields the nodes of a rule that would give a wrong result, and why."""
    walk = _Walk()
    walk.seen(root, {"self": _From(schema, "self"), "oldSelf": _From(schema, "oldSelf")})
    yield from walk.found


class _Walk:
    def __init__(self) -> None:
        self.found: list[tuple[Node, str]] = []

    def seen(self, node: Node, scope: Scope) -> _From:
        """Returns the known facts of the value of a node."""
        match node:
            case Ident():
                return scope.get(node.name, _UNKNOWN)
            case Select():
                return _field(self.seen(node.operand, scope), node.field)
            case Call():
                return self._call(node, [self.seen(arg, scope) for arg in node.args])
            case Made():
                for part in node.parts:
                    self.seen(part, scope)
            case Comprehension():
                return self._comprehension(node, scope)
        return _UNKNOWN

    def _call(self, node: Call, args: list[_From]) -> _From:
        match node.function:
            case "_==_" | "_!=_" if any(arg.unordered for arg in args) and not args[0].counterpart(args[1]):
                if not any(isinstance(arg, Const) for arg in node.args):  # null, or of another type
                    self.found.append((node, COMPARED))
            case "_+_" if any(_is_unordered(arg.schema) for arg in args):
                self.found.append((node, ADDED))
            case "_?._" if isinstance(name := node.args[1], Const):
                return _field(args[0], str(name.value))
            case "_[_]" | "_[?_]":
                return _element(args[0])
            case "value" | "optional.of" | "dyn" | "or" | "orValue":
                return args[0]
            case "_?_:_":
                return args[1] if args[1].schema is not None else args[2]
        return _UNKNOWN

    def _comprehension(self, node: Comprehension, scope: Scope) -> _From:
        start = self.seen(node.start, scope)
        if binds(node):
            # The old object is an optional, bound to its own name.
            bound = start if start.schema is not None else scope.get(node.accumulator, _UNKNOWN)
            return self.seen(node.result, {**scope, node.accumulator: bound})
        over = self.seen(node.range, scope)
        inner = {**scope, node.accumulator: start, node.variables[-1]: _element(over)}
        for part in (node.condition, node.step):
            self.seen(part, inner)
        return self.seen(node.result, {**scope, node.accumulator: start})


def _field(value: _From, name: str) -> _From:
    schema = value.schema if isinstance(value.schema, dict) else {}
    for property_, below in (schema.get("properties") or {}).items():
        if escape(property_) == name:
            return value.into(below, name)
    return value.into(schema.get("additionalProperties"), name)


def _element(value: _From) -> _From:
    """Returns the facts of a list element. Elements of a keyed list are aligned by key, so they compare like the
    list."""
    schema = value.schema if isinstance(value.schema, dict) else {}
    keyed = schema.get("x-kubernetes-list-type") == "map"
    return value.into(schema.get("items") or schema.get("additionalProperties"), "[]" if keyed else "")


def _is_unordered(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("x-kubernetes-list-type") in ("map", "set")


class _Same:
    """A schema by its identity: it is looked through once, however often it is met."""

    __slots__ = ("schema",)

    def __init__(self, schema: Json) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.schema is other.schema


@lru_cache(maxsize=256)
def _has_unordered(same: _Same) -> bool:
    schema = same.schema
    below = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return _is_unordered(schema) or any(_has_unordered(_Same(part)) for part in below if isinstance(part, dict))
