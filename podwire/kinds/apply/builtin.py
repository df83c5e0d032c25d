"""Types of the built-in kinds, from the installed definitions."""

from collections.abc import Mapping
from functools import cache

from podwire.kinds.apply.types import DEDUCED, LEAF, Leaf, ListMap, MapOf, SetList, Struct, Type
from podwire.kinds.schema.definitions import Definitions, Schema, load

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

_DEFAULTS = {
    "io.k8s.api.core.v1.ContainerPort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.ServicePort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.LocalObjectReference": {"name": ""},
}
"""Defaults of list keys that may be left out; the definitions lack them."""

_SCALARS = {
    "string": Leaf("string"),
    "boolean": Leaf("boolean"),
    "integer": Leaf("number"),
    "number": Leaf("number"),
}


@cache
def builtin_types() -> "BuiltinTypes":
    """Returns the types of the installed definitions."""
    return BuiltinTypes(load())


class BuiltinTypes:
    """Types by kind and by definition; each is made once."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._types: dict[str, Type] = {}

    def kind(self, api_version: str, kind: str) -> Type:
        """Returns the type of a kind's objects; Deduced for a kind without a definition."""
        group, _, version = api_version.rpartition("/")
        name = self._definitions.name_of(group, version, kind)
        if name is None:
            return DEDUCED
        return Struct(lambda: self._members(self._definitions.schema(name).properties or {}))

    def definition(self, name: str) -> Type:
        type_ = self._types.get(name)
        if type_ is None:
            type_ = self._types[name] = self._made(name)
        return type_

    def _made(self, name: str) -> Type:
        schema = self._definitions.schema(name)
        if schema.map_type == "atomic":
            return LEAF
        if schema.properties:
            return Struct(lambda: self._members(schema.properties or {}))
        return DEDUCED if schema.json_type == "object" else _SCALARS.get(schema.json_type, LEAF)

    def _members(self, properties: Mapping[str, Schema]) -> Mapping[str, Type]:
        return {name: self._of(property_) for name, property_ in properties.items()}

    def _of(self, schema: Schema) -> Type:
        if schema.map_type == "atomic":
            return LEAF
        if schema.ref:
            return self.definition(schema.target)
        if schema.items is not None:
            return self._list(schema, schema.items)
        if schema.values is not None:
            return MapOf(self._of(schema.values))
        return DEDUCED if schema.json_type == "object" else _SCALARS.get(schema.json_type, LEAF)

    def _list(self, schema: Schema, items: Schema) -> Type:
        if schema.list_type == "map":
            return ListMap(schema.list_map_keys, self._of(items), _DEFAULTS.get(items.target, {}))
        return SetList(self._of(items)) if schema.list_type == "set" else LEAF
