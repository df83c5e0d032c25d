"""Sets of fields in the form in which `managedFields` carries them (FieldsV1), worked on as they are.

A set is a tree of dicts. Its keys are path elements: `f:name` for a member of an object, `k:{"name":"c"}` for an
element of a list with keys, `v:"x"` for an element of a list that is a set. A field is in the set when it stands there
with `{}` or with a `.` among its own: {"f:labels": {".": {}, "f:app": {}}} has .labels and .labels.app. The root is
never in its set, so `{}` is the empty set. Sets share their parts: nobody changes one that exists.
"""

from collections.abc import Iterator, Mapping
from typing import Any

FieldSet = dict[str, Any]
"""A set, or what it has below one path element."""

HERE = "."
FIELD: FieldSet = {}
"""A field with nothing below it; shared by all sets."""


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Returns the fields of either."""
    if not one or not other:
        return one or other
    joined = one
    for key, theirs in other.items():
        mine = one.get(key)
        both = theirs if mine is None else _joined(mine, theirs)
        if both is not mine:
            if joined is one:
                joined = dict(one)  # not before there is something new: who writes again owns the same fields again
            joined[key] = both
    return joined


def _joined(mine: FieldSet, theirs: FieldSet) -> FieldSet:
    if mine and theirs:
        return union(mine, theirs)
    bare = mine or theirs
    return {HERE: FIELD, **bare} if bare and HERE not in bare else bare


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """Returns the fields of one that are not in the other. A field goes alone: fields below it stay."""
    if not one or not other or one.keys().isdisjoint(other):
        return one
    left = {}
    for key, mine in one.items():
        theirs = other.get(key)
        rest = mine if theirs is None else _less(mine, theirs)
        if rest is not None:
            left[key] = rest
    return left


def _less(mine: FieldSet, theirs: FieldSet) -> FieldSet | None:
    if not mine:
        return mine if theirs and HERE not in theirs else None
    return _settled(difference(mine, theirs or {HERE: {}}))


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """Returns the fields of both."""
    shared = {}
    for key, mine in one.items():
        theirs = other.get(key)
        if theirs is None:
            continue
        both = _settled(intersection(mine or {HERE: {}}, theirs or {HERE: {}})) if key != HERE else {}
        if both is not None:
            shared[key] = both
    return shared


def _settled(below: FieldSet) -> FieldSet | None:
    """Returns a node in normal form: `{}` for a field with nothing below it, None for an empty node."""
    if not below:
        return None
    return {} if len(below) == 1 and HERE in below else below


def in_order(fields: FieldSet) -> FieldSet:
    """Returns the same set with its keys in the order of their texts, as upstream writes them.

    Clients compare the bytes of what a typed and an untyped client have read; Go sorts the keys of the latter.
    """
    return {key: in_order(below) if below else below for key, below in sorted(fields.items())}


def has(fields: FieldSet, path: tuple[str, ...]) -> bool:
    """Returns whether the field at the path is in the set."""
    node: FieldSet | None = fields
    for key in path:
        node = node.get(key) if node else None
        if node is None:
            return False
    return node is not None and (not node or HERE in node)


def paths(fields: FieldSet, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the path of every field, in an order that does not depend on how the set came about."""
    for key in sorted(fields):
        if key == HERE:
            continue
        below = fields[key]
        if not below or HERE in below:
            yield (*above, key)
        yield from paths(below, (*above, key))


def tidy(given: Any, depth: int = 0) -> FieldSet:
    """Returns a set that a client has sent, in normal form; raises ValueError if it is not one."""
    if not isinstance(given, Mapping) or depth > DEEPEST:
        raise ValueError("a set of fields must be an object")
    kept: FieldSet = {}
    for key, below in given.items():
        if key != HERE and key[:2] not in ("f:", "k:", "v:", "i:"):
            raise ValueError(f'unknown path element "{key}"')
        inner = {} if key == HERE else tidy(below, depth + 1)
        kept[key] = {} if len(inner) == 1 and HERE in inner else inner
    return kept


DEEPEST = 200
"""Levels that a set may have: as deep as any object that is taken, and a little more."""
