"""Which fields a value has: those that its author means to own, or simply all."""

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
    """The fields that an applied configuration claims.

    Scalars and what is owned as a whole; of lists that are owned by element each element; of objects what is in them,
    and the object itself only where it is empty or came under a name of its author's own.
    """
    if (members := members_of(of, value)) is not None:
        return _claimed_members(members, value)
    if (elements := elements_of(of, value)) is not None:
        return _claimed_elements(elements, value)
    return {}


def _claimed_members(of: Members, value: dict[str, Any]) -> FieldSet:
    found: FieldSet = {}
    for name, member in value.items():
        kind = of.member(name)
        if kind is None:
            continue
        below = claimed(kind, member)
        whole = member is None or member == {} or _is_leaf(kind, member) or not of.names(name)
        if below:
            found[f"f:{name}"] = {HERE: {}, **below} if whole else below
        elif whole:
            found[f"f:{name}"] = {}
    return found


def _claimed_elements(of: Elements, value: list[Any]) -> FieldSet:
    found: FieldSet = {}
    for item in value:
        try:
            name = of.name(item)
        except BadElement:
            continue
        below = claimed(of.element, item)
        found[name] = {HERE: {}, **below} if below and name not in found else {}
    return found


def _is_leaf(of: Type, value: Any) -> bool:
    return members_of(of, value) is None and elements_of(of, value) is None


def whole(of: Type, value: Any) -> FieldSet:
    """A value that has come or gone, with everything below it: what stands under its name in a set."""
    if not value or type(of) is Leaf:
        return FIELD
    if type(value) is dict and of.by_member:
        return _whole_members(cast("Members", of), value)
    if type(value) is list and of.by_element:
        return _whole_elements(cast("Elements", of), value)
    return FIELD


def parts(of: Members, value: dict[str, Any]) -> FieldSet:
    """What is in an object, each member with everything below it; not the object itself."""
    found = _whole_members(of, value).copy()
    found.pop(HERE, None)
    return found


def _whole_members(of: Members, value: dict[str, Any]) -> FieldSet:
    if type(of) is Struct and (frame := of.frames.get(names := tuple(value)) or _framed(of, names)):
        return _filled(frame, value)
    found: FieldSet = {HERE: FIELD}
    known = of.known
    for name, member in value.items():
        key, kind = known[name]
        if kind is not None:
            found[key] = whole(kind, member)
    return found if len(found) > 1 else FIELD


def _filled(frame: Frame, value: dict[str, Any]) -> FieldSet:
    fields, deep = frame
    if not deep:
        return fields
    found = fields.copy()
    for name, key, kind in deep:
        if each := value[name]:
            found[key] = whole(kind, each)
    return found


def _framed(of: Struct, names: tuple[str, ...]) -> Frame | None:
    """What all values with these members have in common: the same few combinations come again and again."""
    if not names or not all(map(of.names, names)):
        return None
    members = [(name, *of.known[name]) for name in names]
    fields: FieldSet = {HERE: FIELD, **{key: FIELD for _, key, _ in members}}
    deep = tuple((name, key, kind) for name, key, kind in members if kind is not None and type(kind) is not Leaf)
    if len(of.frames) < MOST_FRAMES:
        of.frames[names] = (fields, deep)
    return fields, deep


def _whole_elements(of: Elements, value: list[Any]) -> FieldSet:
    found: FieldSet = {HERE: FIELD}
    for item in value:
        try:
            name = of.name(item)
        except BadElement:
            continue
        found[name] = FIELD if name in found else whole(of.element, item)
    return found if len(found) > 1 else FIELD
