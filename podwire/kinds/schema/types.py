"""Shapes of the built-in kinds, made from the definitions as they are asked for."""

from collections.abc import Iterator

from podwire.kinds.schema import scalars
from podwire.kinds.schema.containers import Bounded, Either, ListOf, MapOf, Member, Struct, Type
from podwire.kinds.schema.definitions import Definitions, Schema, load
from podwire.kinds.schema.gofields import exceptions
from podwire.kinds.shape import Shape

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_SCHEMA = f"{_CRD}.JSONSchemaProps"

_SPECIAL: dict[str, Type] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": scalars.QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": scalars.INT_OR_STRING,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": scalars.ANYTHING,
    f"{_META}.Time": scalars.TIME,
    f"{_META}.MicroTime": scalars.MICRO_TIME,
    f"{_META}.FieldsV1": scalars.ANYTHING,
    f"{_META}.Patch": scalars.ANYTHING,
    f"{_CRD}.JSON": scalars.ANYTHING,
}
"""Definitions whose form is in Go code only."""

_RECURSIVE = {_SCHEMA, f"{_CRD}.JSONSchemaPropsOrArray", f"{_CRD}.JSONSchemaPropsOrBool"}
"""Definitions that can contain themselves."""

_KEPT_EMPTY = {(f"{_META}.ObjectMeta", "managedFields")}
"""Lists that mean something when they are empty: forget who owns what."""

_SCALARS: dict[tuple[str, str], Type] = {
    ("string", ""): scalars.STRING,
    ("string", "byte"): scalars.BYTES,
    ("boolean", ""): scalars.BOOLEAN,
    ("integer", "int32"): scalars.INT32,
    ("integer", "int64"): scalars.INT64,
    ("number", "double"): scalars.NUMBER,
    ("object", ""): scalars.ANYTHING,
}
_NEVER_EMPTY = (scalars.ANYTHING, scalars.QUANTITY, scalars.INT_OR_STRING)
"""Types whose zero is shown when it is given."""

_ALWAYS_THERE = {"metadata", "spec", "status"}


class Schemas:
    """Shapes by kind and by definition; each is made once."""

    def __init__(self, definitions: Definitions | None = None) -> None:
        self._definitions = definitions or load()
        self._types: dict[str, Type] = dict(_SPECIAL)

    def shape(self, api_version: str, kind: str) -> Shape | None:
        """Returns the shape of a kind; None for an unknown kind."""
        group, _, version = api_version.rpartition("/")
        name = self._definitions.name_of(group, version, kind)
        return self.shape_of(name) if name else None

    def shape_of(self, definition: str) -> Shape:
        """By name: `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`. Raises KeyError."""
        return self._bounded(definition)

    def _bounded(self, name: str) -> Type:
        return Bounded(self._type(name)) if name in _RECURSIVE else self._type(name)

    def _type(self, name: str) -> Type:
        type_ = self._types.get(name)
        if type_ is None:
            type_ = self._types[name] = self._made(name)
        return type_

    def _made(self, name: str) -> Type:
        schema = self._definitions.schema(name)
        package, _, kind = name.rpartition(".")
        go_type = f"{package.rpartition('.')[2]}.{kind}"
        if kind.startswith("JSONSchemaPropsOr"):
            return self._either(go_type)
        return Struct(go_type, lambda: self._members(name, schema))

    def _either(self, go_type: str) -> Type:
        schema = self._type(_SCHEMA)
        others: dict[str, dict[type, Type]] = {
            "Bool": {bool: scalars.BOOLEAN, dict: schema},
            "Array": {list: ListOf(schema), dict: schema},
            "StringArray": {list: ListOf(scalars.STRING), dict: schema},
        }
        return Either(go_type, others[go_type.partition("PropsOr")[2]])

    def _members(self, name: str, schema: Schema) -> Iterator[Member]:
        for property_, of in (schema.properties or {}).items():
            kind = self._of(of, inside=name)
            always, keep = _kept(name, property_, kind, required=property_ in schema.required)
            strategies = frozenset(of.strategy.split(",")) if of.strategy else frozenset()
            yield Member(property_, kind, keep or (name, property_) in _KEPT_EMPTY, always, of.merge_key, strategies)

    def _of(self, schema: Schema, *, inside: str) -> Type:
        if schema.ref:
            return self._type(schema.target) if inside in _RECURSIVE else self._bounded(schema.target)
        if schema.items is not None:
            return ListOf(self._of(schema.items, inside=inside))
        if schema.values is not None:
            return MapOf(self._of(schema.values, inside=inside))
        return _SCALARS[schema.json_type, schema.format]


def _kept(definition: str, name: str, kind: Type, *, required: bool) -> tuple[bool, bool]:
    """Returns whether a member is shown when absent, and whether it is shown when empty; see gofields."""
    rules = exceptions(definition)
    if isinstance(kind, Struct | Bounded | Either):
        plain = isinstance(kind, Struct) and (name in rules.present or required or name in _ALWAYS_THERE)
        return plain and name not in rules.absent, True
    shown = name not in rules.omitted and (required or name in rules.shown)
    given = kind in _NEVER_EMPTY or name in rules.pointers
    return shown and name not in rules.pointers and kind.zero() is not None, shown or given
