"""Fields that were owned under an older schema, as the present one would have them."""

from podwire.kinds.apply.fieldsets import HERE, FieldSet
from podwire.kinds.apply.types import Deduced, Leaf, ListMap, SetList, Type


def fitted(of: Type, fields: FieldSet) -> FieldSet:
    """What has become atomic is owned as a whole by whoever owned part of it."""
    found: FieldSet = {}
    for key, below in fields.items():
        if key == HERE or not below:
            found[key] = below
            continue
        inner = _below(of, key)
        if isinstance(inner, Leaf):
            found[key] = {}
        else:
            found[key] = below if inner is None or isinstance(inner, Deduced) else fitted(inner, below)
    return found


def _below(of: Type, key: str) -> Type | None:
    if isinstance(of, ListMap | SetList):
        return of.element
    return None if isinstance(of, Leaf) or not key.startswith("f:") else of.member(key[2:])
