"""Types of custom resources, from the schema of one version of their definition."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.apply.types import DEDUCED, LEAF, Leaf, ListMap, MapOf, SetList, Struct, Type

_SCALARS = {
    "string": Leaf("string"),
    "boolean": Leaf("boolean"),
    "integer": Leaf("number"),
    "number": Leaf("number"),
}
_IDENTITY = {"apiVersion": Leaf("string"), "kind": Leaf("string")}


def custom_type(schema: Mapping[str, Any], metadata: Type) -> Type:
    """Returns the type of objects whose `schema.openAPIV3Schema` this is; `metadata` is the same for all kinds."""
    others = DEDUCED if schema.get("x-kubernetes-preserve-unknown-fields") else None
    members = {**_members(schema, metadata), **_IDENTITY, "metadata": metadata}
    return Struct(lambda: members, others)


def _members(schema: Mapping[str, Any], metadata: Type) -> dict[str, Type]:
    return {name: _of(property_, metadata) for name, property_ in (schema.get("properties") or {}).items()}


def _of(schema: Mapping[str, Any], metadata: Type) -> Type:
    if schema.get("x-kubernetes-int-or-string"):
        return LEAF
    kind = schema.get("type")
    if kind == "array":
        return _list(schema, metadata)
    if kind != "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        return _SCALARS.get(kind or "", LEAF)
    return LEAF if schema.get("x-kubernetes-map-type") == "atomic" else _object(schema, metadata)


def _object(schema: Mapping[str, Any], metadata: Type) -> Type:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return MapOf(_of(values, metadata))
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or values is True
    members = _members(schema, metadata)
    if schema.get("x-kubernetes-embedded-resource"):
        members |= {**_IDENTITY, "metadata": metadata}
    if not members and is_open:
        return DEDUCED
    return Struct(lambda: members, DEDUCED if is_open else None)


def _list(schema: Mapping[str, Any], metadata: Type) -> Type:
    items = schema.get("items")
    kind = schema.get("x-kubernetes-list-type")
    if not isinstance(items, Mapping) or kind not in ("map", "set"):
        return LEAF
    if kind == "set":
        return SetList(_of(items, metadata))
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    properties = items.get("properties") or {}
    defaults = {key: properties[key]["default"] for key in keys if "default" in (properties.get(key) or {})}
    return ListMap(keys, _of(items, metadata), defaults)
