"""Sets of the fields of a value: those that an applied configuration claims, or all of them."""

from typing import Any, cast

from podwire.kinds.apply.fieldsets import FIELD, HERE, FieldSet
from podwire.kinds.apply.types import (
    MOST_FRAMES,
    BadElement,
    Elements,
    Frame,
    Leaf,
    Members,
    Struct,
    Type,
    elements_of,
    members_of,
)


def claimed(of: Type, value: Any) -> FieldSet:
    """Returns the fields that an applied configuration claims.

    Scalars and what is owned as a whole; of lists that are owned by element each element; of objects what is in them,
    and the object itself only where it is empty or came under a name of its author's own.
    """
    if (members := members_of(of, value)) is not None:
        fields: FieldSet = {}
        for name, member in value.items():
            kind = members.member(name)
            if kind is None:
                continue
            below = claimed(kind, member)
            whole = member is None or member == {} or _is_leaf(kind, member) or not members.names(name)
            if below:
                fields[f"f:{name}"] = {HERE: {}, **below} if whole else below
            elif whole:
                fields[f"f:{name}"] = {}
        return fields
    if (elements := elements_of(of, value)) is not None:
        return _claimed_elements(elements, value)
    return {}


def _claimed_elements(of: Elements, value: list[Any]) -> FieldSet:
    fields: FieldSet = {}
    for item in value:
        try:
            name = of.name(item)
        except BadElement:
            continue
        below = claimed(of.element, item)
        fields[name] = {HERE: {}, **below} if below and name not in fields else {}
    return fields


def _is_leaf(of: Type, value: Any) -> bool:
    return members_of(of, value) is None and elements_of(of, value) is None


def whole(of: Type, value: Any) -> FieldSet:
    """Returns a value that was added or removed with everything below it, as the subset under its path element."""
    if not value or type(of) is Leaf:
        return FIELD
    if type(value) is dict and of.by_member:
        return _whole_members(cast("Members", of), value)
    if type(value) is list and of.by_element:
        return _whole_elements(cast("Elements", of), value)
    return FIELD


def parts(of: Members, value: dict[str, Any]) -> FieldSet:
    """Returns the members of an object with everything below them, without the object itself."""
    fields = _whole_members(of, value).copy()
    fields.pop(HERE, None)
    return fields


def _whole_members(of: Members, value: dict[str, Any]) -> FieldSet:
    if type(of) is Struct and (frame := of.frames.get(names := tuple(value)) or _framed(of, names)):
        return _filled(frame, value)
    fields: FieldSet = {HERE: FIELD}
    known = of.known
    for name, member in value.items():
        key, kind = known[name]
        if kind is not None:
            fields[key] = whole(kind, member)
    return fields if len(fields) > 1 else FIELD


def _filled(frame: Frame, value: dict[str, Any]) -> FieldSet:
    fields, deep = frame
    if not deep:
        return fields
    filled = fields.copy()
    for name, key, kind in deep:
        if each := value[name]:
            filled[key] = whole(kind, each)
    return filled


def _framed(of: Struct, names: tuple[str, ...]) -> Frame | None:
    """Returns the part of the set that all values with these members share; the same few combinations recur."""
    if not names or not all(map(of.names, names)):
        return None
    members = [(name, *of.known[name]) for name in names]
    fields: FieldSet = {HERE: FIELD, **{key: FIELD for _, key, _ in members}}
    deep = tuple((name, key, kind) for name, key, kind in members if kind is not None and type(kind) is not Leaf)
    if len(of.frames) < MOST_FRAMES:
        of.frames[names] = (fields, deep)
    return fields, deep


def _whole_elements(of: Elements, value: list[Any]) -> FieldSet:
    fields: FieldSet = {HERE: FIELD}
    for item in value:
        try:
            name = of.name(item)
        except BadElement:
            continue
        fields[name] = FIELD if name in fields else whole(of.element, item)
    return fields if len(fields) > 1 else FIELD
