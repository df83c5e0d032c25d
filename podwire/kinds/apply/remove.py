"""An object without some of its fields."""

from typing import Any

from podwire.kinds.apply.fieldsets import HERE, FieldSet
from podwire.kinds.apply.types import (
    BadElement,
    Deduced,
    Elements,
    ListMap,
    MapOf,
    Members,
    SetList,
    Struct,
    Type,
    elements_of,
    members_of,
)


def remove(of: Type, value: Any, fields: FieldSet) -> Any:
    """Returns the value without the fields, each with everything below it; None when nothing is left."""
    if not fields:
        return value
    if (members := members_of(of, value)) is not None:
        return _members(members, value, fields) or None
    if (elements := elements_of(of, value)) is not None:
        return _elements(elements, value, fields) or None
    return None if isinstance(value, dict | list) else value


def _members(of: Members, value: dict[str, Any], fields: FieldSet) -> dict[str, Any]:
    kept = {}
    for name, member in value.items():
        below = fields.get(f"f:{name}")
        if below is None:
            kept[name] = member
        elif below and HERE not in below:
            kind = of.member(name)
            left = remove(kind, member, below) if kind is not None else member
            if left is not None:
                kept[name] = left
    return kept


def _elements(of: Elements, value: list[Any], fields: FieldSet) -> list[Any]:
    kept = []
    for item in value:
        try:
            below = fields.get(of.name(item))
        except BadElement:
            below = None
        if below is None:
            kept.append(item)
        elif below and HERE not in below:
            kept.append(remove(of.element, item, below))
    return kept


def with_named(of: Type | None, fields: FieldSet) -> FieldSet:
    """Returns the set and, as its fields, the members of Structs that lead to them: .spec where .spec.replicas is in
    it."""
    named_fields: FieldSet = {}
    for key, below in fields.items():
        if key == HERE or not below:
            named_fields[key] = below
            continue
        inner = with_named(_below(of, key), below)
        named = key.startswith("f:") and isinstance(of, Struct) and of.names(key[2:])
        named_fields[key] = {HERE: {}, **inner} if named else inner
    return named_fields


def _below(of: Type | None, key: str) -> Type | None:
    if key.startswith("f:"):
        return of.member(key[2:]) if isinstance(of, MapOf | Struct | Deduced) else None
    return of.element if isinstance(of, ListMap | SetList) else None
