"""A version's structural schema, compiled to a Shape (kubernetes.io: "Specifying a structural schema").

A schema is structural when `properties`, `additionalProperties`, `items` and `type` alone describe the tree of values;
allOf, anyOf, oneOf and not only validate. So one schema is compiled to three parallel structures, each walked alone:

    structure          made from                         used for
    Node tree          properties, items, x-kubernetes   pruning and defaulting: `decode`, `apply_defaults`
    Check closures     all value validation (checks.py)  `validate`
    RuleTree           x-kubernetes-validations          `validate`: CEL, after the checks (rules.py)

Every object passes in this order, as in apiextensions-apiserver:

    decode          prune: unknown fields are left out and reported, unless x-kubernetes-preserve-unknown-fields; nulls
                    are left out unless nullable. A wrong type is not an error here, but in `validate`.
    apply_defaults  an absent field with a default gets a copy; a null that is not nullable counts as absent
    validate        types and values, then rules

x-kubernetes-embedded-resource makes a node an object of its own: apiVersion, kind and metadata stay, and metadata is
decoded by the built-in ObjectMeta shape. The root is such a node. List and map types (x-kubernetes-list-type) give
`field` its merge keys, which strategic merge and server-side apply ask for.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from podwire.kinds.crds.checks import Check, child, compiled
from podwire.kinds.crds.patterns import TooCostly, metered
from podwire.kinds.crds.rules import RuleTree, compile_rules, count_rules, run_rules
from podwire.kinds.shape import Field, Report, Shape
from podwire.protocols.cel import CompileError, Unavailable
from podwire.protocols.k8sapi.status import ApiError, FieldError, Reason, forbidden

Json = Mapping[str, Any]

MOST_ADDED = 1_500_000
"""Bytes that defaults may add to an object: as many as the store takes."""
MOST_REPORTED = 100
"""Unknown fields that one body can have reported, as for built-in kinds."""
NAMED = 8
"""Bytes that a member's name takes at least; so many defaults of nothing add up as well."""
FEW_RULES = 20
"""Rules that are compiled when the first object needs them; more would keep its request waiting too long."""

_IDENTITY = ("apiVersion", "kind")
_MERGED = frozenset(["merge"])


class Node:
    """One schema of the tree: prunes the fields of a value and fills in their defaults."""

    __slots__ = ("_default_size", "_embedded", "_items", "_meta", "_open", "_properties", "_values", "defaulting",
                 "list_map_keys", "list_type", "map_type", "nullable", "schema")  # fmt: skip

    def __init__(self, schema: Json, meta: Shape) -> None:
        self.schema = schema
        self.nullable = bool(schema.get("nullable"))
        self.list_type = str(schema.get("x-kubernetes-list-type") or "atomic")
        self.list_map_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        self.map_type = str(schema.get("x-kubernetes-map-type") or "granular")
        values, items = schema.get("additionalProperties"), schema.get("items")
        self._meta = meta
        self._embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        self._open = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or values is True
        self._properties = {name: Node(property_, meta) for name, property_ in (schema.get("properties") or {}).items()}
        self._values = Node(values, meta) if isinstance(values, dict) else None
        self._items = Node(items, meta) if isinstance(items, dict) else None
        below = [*self._properties.values(), *(node for node in (self._values, self._items) if node)]
        self.defaulting: bool = "default" in schema or any(node.defaulting for node in below)
        self._default_size = len(msgspec.json.encode(schema["default"])) if "default" in schema else 0

    def decode(self, value: Any, path: str, report: Report) -> Any:
        if isinstance(value, dict):
            kept: dict[str, Any] = {}
            for name, member in value.items():
                if self._embedded and name == "metadata":
                    if member is not None:
                        kept[name] = self._meta.decode(member, child(path, name), report)
                    continue
                node = self._properties.get(name, self._values)
                if node is not None:
                    if member is not None or node.nullable:
                        kept[name] = node.decode(member, child(path, name), report)
                elif self._open or (self._embedded and name in _IDENTITY):
                    kept[name] = member
                else:
                    report.unknown.append(child(path, name))
            return kept
        if isinstance(value, list) and self._items is not None:
            item = self._items
            return [item.decode(element, f"{path}[{index}]", report) for index, element in enumerate(value)]
        return value

    def fill(self, value: Any, growth: "Growth") -> None:
        """Puts defaults into a value, in place."""
        if isinstance(value, dict):
            for name, node in self._properties.items():
                if not node.defaulting:
                    continue
                if name in value:
                    value[name] = node.filled(value[name], growth)
                elif "default" in node.schema:
                    value[name] = node.filled(node.default(growth), growth)
            if self._values is not None and self._values.defaulting:
                for name, member in value.items():  # the keys stay, so they may be set while walking
                    value[name] = self._values.filled(member, growth)
        elif isinstance(value, list) and self._items is not None and self._items.defaulting:
            for index, element in enumerate(value):
                value[index] = self._items.filled(element, growth)

    def filled(self, value: Any, growth: "Growth") -> Any:
        """Returns the value with its defaults; the default itself where there is a null that may not be one."""
        if value is None and not self.nullable and "default" in self.schema:
            value = self.default(growth)
        self.fill(value, growth)
        return value

    def default(self, growth: "Growth") -> Any:
        growth.spend(self._default_size + NAMED)
        return fresh(self.schema["default"])

    def field(self, name: str) -> Field | None:
        if self._embedded and name == "metadata":
            return Field(self._meta)
        node = self._properties.get(name, self._values)
        if node is None:
            return Field(_ANYTHING) if self._open or (self._embedded and name in _IDENTITY) else None
        if node.list_type == "atomic":
            return Field(node)
        key = node.list_map_keys[0] if len(node.list_map_keys) == 1 else ""
        return Field(node, merge_key=key, strategies=_MERGED)

    @property
    def element(self) -> Shape | None:
        return self._items


class Growth:
    """The bytes that defaults may still add to one object. A default of kilobytes in each of ten thousand elements is
    too large long before the object is encoded and measured."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_ADDED

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ApiError(Reason.TOO_LARGE, f"Request entity too large: its defaults are more than {MOST_ADDED} bytes")


class _Anything:
    """A value that the schema does not describe."""

    def decode(self, value: Any, path: str, report: Report) -> Any:  # noqa: ARG002 - a Shape is asked for all three
        return value

    def field(self, name: str) -> Field | None:  # noqa: ARG002 - every name is fine
        return Field(self)

    @property
    def element(self) -> Shape | None:
        return self


_ANYTHING = _Anything()


class Structural:
    """The schema of one version of a custom resource. A Shape; `metadata` is not the schema's but `meta_shape`'s."""

    def __init__(self, schema: Json, meta_shape: Shape) -> None:
        self._root = Node({**schema, "x-kubernetes-embedded-resource": True}, meta_shape)
        self._check: Check = compiled(schema)
        self._schema = schema
        if count_rules(schema) > FEW_RULES:
            self._rules  # noqa: B018 - compiled here, where the caller chose to

    @cached_property
    def _rules(self) -> RuleTree | None:
        """The rules, compiled for the first object if they are few: the CEL library takes 12 MB, and most clusters have
        definitions with rules of which they have no object."""
        return compile_rules(self._schema)

    def decode(self, value: Any, path: str, report: Report) -> Any:
        """Returns the object without what the schema does not know. Raises TypeMismatch for metadata only."""
        known = len(report.unknown)
        kept = self._root.decode(value, path, report)
        report.unknown[known:] = sorted(report.unknown[known:])[:MOST_REPORTED]
        return kept

    def field(self, name: str) -> Field | None:
        return self._root.field(name)

    @property
    def element(self) -> Shape | None:
        return None

    def apply_defaults(self, obj: dict[str, Any]) -> None:
        """Fills in defaults, in place."""
        if self._root.defaulting:
            self._root.fill(obj, Growth())

    def as_read(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Returns an object that was stored under an earlier or another version's schema, pruned and defaulted by this
        one."""
        seen: dict[str, Any] = self.decode(obj, "", Report())
        self.apply_defaults(seen)
        return seen

    def validate(self, value: Any, path: str = "", *, old: Any = None) -> list[FieldError]:
        """Returns the errors of an object; its metadata is checked elsewhere, except for the schema's own restrictions.
        Rules may compare the object with `old`."""
        errors = check_metered(self._check, value, path)
        try:
            rules = self._rules
        except (CompileError, Unavailable) as error:  # they were compiled on another machine, when they were stored
            return [*errors, forbidden(path, f"rules of the definition cannot be compiled: {error}")]
        return errors + run_rules(rules, value, old, errors)


def check_metered(check: Check, value: Any, path: str) -> list[FieldError]:
    """Returns the errors of a check, within the time that one request may take for patterns."""
    errors: list[FieldError] = []
    try:
        with metered():
            check(value, path, errors)
    except TooCostly as error:
        why = "too much text for patterns as costly as those of its schema"
        errors.append(forbidden(error.path, why))
    return errors


def fresh(value: Any) -> Any:
    """Returns a deep copy: many requests fill in the same default."""
    if isinstance(value, dict):
        return {key: fresh(member) for key, member in value.items()}
    if isinstance(value, list):
        return [fresh(element) for element in value]
    return value


def compile_schema(schema: Json, meta_shape: Shape) -> Structural:
    """Returns the shape of a version's `schema.openAPIV3Schema`, which `definition` has found to be structural."""
    return Structural(schema, meta_shape)
