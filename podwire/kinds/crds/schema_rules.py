"""Validation of a version's openAPIV3Schema in one walk: whether it is structural, and keywords that are not
allowed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podwire.kinds.crds.checks import compiled
from podwire.kinds.crds.list_rules import list_errors
from podwire.kinds.crds.patterns import BadPattern, compile_pattern
from podwire.kinds.crds.rule_checks import form_errors
from podwire.kinds.crds.structural import Growth, Node, check_metered, fresh
from podwire.kinds.shape import Field, Report, Shape
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid, not_supported, required, too_many

Json = Mapping[str, Any]
DEEPEST = 64
"""Schemas nested deeper are rejected; every walk over a schema recurses."""

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_ANY_OF_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_NOT_SUPPORTED = ("$ref", "$schema", "additionalItems", "definitions", "dependencies", "id", "patternProperties")
_VALUE_TYPES: Mapping[str, tuple[type, ...]] = {
    "allOf": (list,),
    "anyOf": (list,),
    "enum": (list,),
    "exclusiveMaximum": (bool,),
    "exclusiveMinimum": (bool,),
    "format": (str,),
    "maxItems": (int,),
    "maxLength": (int,),
    "maxProperties": (int,),
    "maximum": (int, float),
    "minItems": (int,),
    "minLength": (int,),
    "minProperties": (int,),
    "minimum": (int, float),
    "multipleOf": (int, float),
    "not": (dict,),
    "nullable": (bool,),
    "oneOf": (list,),
    "pattern": (str,),
    "properties": (dict,),
    "required": (list,),
    "type": (str,),
    "x-kubernetes-embedded-resource": (bool,),
    "x-kubernetes-int-or-string": (bool,),
    "x-kubernetes-list-map-keys": (list,),
    "x-kubernetes-list-type": (str,),
    "x-kubernetes-map-type": (str,),
    "x-kubernetes-preserve-unknown-fields": (bool,),
}
"""The JSON types of keywords, which are not checked elsewhere below `items` and `additionalProperties`."""

_LISTS_OF_NAMES = ("required", "x-kubernetes-list-map-keys")
_FORBIDDEN_WITHIN: Mapping[str, str] = {
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "title": "must be empty to be structural",
    "type": "must be empty to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
"""Keywords that allOf, anyOf, oneOf and not may not contain: they validate values and do not describe them."""

_PLACES = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}

Walk = Callable[[Json, str], list[FieldError]]
MOST_SELECTABLE = 8
_SELECTABLE_TYPES = ("boolean", "integer", "string")


def schema_errors(schema: Any, path: str) -> list[FieldError]:
    """Returns the errors of a version's schema; the path is that of `openAPIV3Schema`."""
    return _checked(schema, path, "root", 0)


def _checked(schema: Any, path: str, place: str, depth: int) -> list[FieldError]:
    errors = _readable(schema, path, depth)
    if errors:
        return errors
    errors = [*_words(schema, path), *_type(schema, path, place), *_identity(schema, path, place)]
    errors += list_errors(schema, path)
    errors += form_errors(schema, path)
    errors += _values(schema, path, place, depth)
    for name, property_ in (schema.get("properties") or {}).items():
        errors += _checked(property_, f"{path}.properties[{name}]", "field", depth + 1)
    if "items" in schema:
        errors += _checked(schema["items"], f"{path}.items", "item", depth + 1)
    errors += _alternatives(schema, path, depth)
    return errors


def _readable(schema: Any, path: str, depth: int) -> list[FieldError]:
    """Returns errors that keep the other checks from reading the schema at all."""
    if depth > DEEPEST:
        return [forbidden(path, f"schemas may be nested {DEEPEST} deep at most")]
    if isinstance(schema, list):
        return [forbidden(path, "items must be a schema object and not an array")]
    if not isinstance(schema, dict):
        return [invalid(path, schema, "must be a schema")]
    return [
        invalid(f"{path}.{keyword}", schema[keyword], problem)
        for keyword, types in _VALUE_TYPES.items()
        if (problem := _misfit(keyword, schema.get(keyword), types))
    ]


def _misfit(keyword: str, value: Any, types: tuple[type, ...]) -> str:
    if value is None:
        return ""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return "has the wrong type"
    names: list[Any] = [*value] if keyword in _LISTS_OF_NAMES and isinstance(value, list) else []
    return "" if all(isinstance(name, str) for name in names) else "must be a list of strings"


def _words(schema: Json, path: str) -> list[FieldError]:
    errors = [forbidden(f"{path}.{word}", f"{word} is not supported") for word in _NOT_SUPPORTED if word in schema]
    if schema.get("uniqueItems"):
        reason = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden(f"{path}.uniqueItems", reason))
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        errors.append(invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined"))
    return errors + _pattern(schema, path)


def _pattern(schema: Json, path: str) -> list[FieldError]:
    pattern = schema.get("pattern")
    if not pattern:
        return []
    try:
        compile_pattern(pattern)
    except BadPattern as error:
        return [
            invalid(
                f"{path}.pattern",
                pattern,
                f"must be a valid regular expression, but isn't: error parsing regexp: {error}",
            )
        ]
    return []


def _type(schema: Json, path: str, place: str) -> list[FieldError]:
    kind, embedded = schema.get("type") or "", schema.get("x-kubernetes-embedded-resource")
    where = f"{path}.type"
    if kind == "null":
        return [forbidden(where, "type cannot be set to null, use nullable as an alternative")]
    if kind and kind not in TYPES:
        return [not_supported(where, kind, TYPES)]
    if embedded and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        return [invalid(where, kind, detail) if kind else required(where, detail)]
    if (
        not kind
        and not schema.get("x-kubernetes-int-or-string")
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        return [required(where, f"must not be empty {_PLACES[place]}")]
    if place == "root" and kind and kind != "object":
        return [invalid(where, kind, "must be object at the root")]
    if schema.get("x-kubernetes-int-or-string"):
        return _int_or_string(schema, path)
    return [required(f"{path}.items", "must be specified")] if kind == "array" and "items" not in schema else []


def _int_or_string(schema: Json, path: str) -> list[FieldError]:
    detail = "must be false if x-kubernetes-int-or-string is true"
    words = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")
    errors = [invalid(f"{path}.{word}", True, detail) for word in words if schema.get(word)]
    if schema.get("type"):
        errors.append(invalid(f"{path}.type", schema["type"], "must be empty if x-kubernetes-int-or-string is true"))
    return errors


def _identity(schema: Json, path: str, place: str) -> list[FieldError]:
    """Checks the restrictions of apiVersion, kind and metadata."""
    properties, embedded = schema.get("properties") or {}, schema.get("x-kubernetes-embedded-resource")
    errors = []
    if place == "root" or embedded:
        errors += [
            invalid(f"{path}.properties[{word}].type", _type_of(properties[word]), f"must be {kind}")
            for word, kind in (("apiVersion", "string"), ("kind", "string"), ("metadata", "object"))
            if word in properties and _type_of(properties[word]) != kind
        ]
    if place == "root" and not _plain_metadata(properties.get("metadata")):
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        errors.append(forbidden(f"{path}.properties[metadata]", detail))
    if embedded and not properties and not schema.get("x-kubernetes-preserve-unknown-fields"):
        detail = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        errors.append(required(f"{path}.properties", detail))
    return errors


def _type_of(schema: Any) -> Any:
    return schema.get("type", "") if isinstance(schema, dict) else ""


def _plain_metadata(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True  # absent, or reported elsewhere
    properties = schema.get("properties") or {}
    keywords = {word for word, value in schema.items() if value and word not in ("type", "properties", "description")}
    return not keywords and set(properties) <= {"name", "generateName"}


def _values(schema: Json, path: str, place: str, depth: int) -> list[FieldError]:
    """Checks the schema of a map's values."""
    values, where = schema.get("additionalProperties"), f"{path}.additionalProperties"
    if values is None:
        return []
    errors = []
    if values is False:
        errors.append(forbidden(where, "additionalProperties cannot be set to false"))
    if place == "root":
        errors.append(forbidden(where, "must not be used at the root"))
    if schema.get("x-kubernetes-embedded-resource"):
        errors.append(forbidden(where, "must not be used if x-kubernetes-embedded-resource is set"))
    if schema.get("properties"):
        errors.append(forbidden(where, "additionalProperties and properties are mutual exclusive"))
    return errors if isinstance(values, bool) else errors + _checked(values, where, "field", depth + 1)


def _alternatives(schema: Json, path: str, depth: int) -> list[FieldError]:
    skip_any_of = bool(schema.get("x-kubernetes-int-or-string")) and schema.get("anyOf") == _ANY_OF_INT_OR_STRING
    errors: list[FieldError] = []
    for word in ("allOf", "anyOf", "oneOf"):
        if word == "anyOf" and skip_any_of:
            continue
        for index, alternative in enumerate(schema.get(word) or []):
            errors += _alternative(
                alternative, f"{path}.{word}[{index}]", depth + 1, int_or_string=word == "allOf" and not index
            )
    if schema.get("not") is not None:
        errors += _alternative(schema["not"], f"{path}.not", depth + 1)
    return errors


def _alternative(schema: Any, path: str, depth: int, *, int_or_string: bool = False) -> list[FieldError]:
    """Checks a schema that only validates; `int_or_string` allows the one form of types that upstream allows."""
    errors = _readable(schema, path, depth)
    if errors:
        return errors
    errors = [forbidden(f"{path}.{word}", reason) for word, reason in _FORBIDDEN_WITHIN.items() if schema.get(word)]
    errors += _words(schema, path)
    if "metadata" in (schema.get("properties") or {}):
        errors.append(forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context"))
    if int_or_string and schema.get("anyOf") == _ANY_OF_INT_OR_STRING:
        schema = {word: value for word, value in schema.items() if word != "anyOf"}
    for inner, where in _below(schema, path):
        errors += _alternative(inner, where, depth + 1)
    return errors


def _below(schema: Json, path: str) -> Sequence[tuple[Any, str]]:
    schemas = [
        (property_, f"{path}.properties[{name}]") for name, property_ in (schema.get("properties") or {}).items()
    ]
    for word in ("allOf", "anyOf", "oneOf"):
        schemas += [
            (alternative, f"{path}.{word}[{index}]") for index, alternative in enumerate(schema.get(word) or [])
        ]
    schemas += [(schema[word], f"{path}.{word}") for word in ("items", "not") if schema.get(word) is not None]
    return schemas


def everywhere(schema: Json, path: str, look: Walk) -> list[FieldError]:
    """Returns the errors that `look` reports for a schema and all schemas below it that describe values."""
    errors = look(schema, path)
    for name, property_ in (schema.get("properties") or {}).items():
        errors += everywhere(property_, f"{path}.properties[{name}]", look)
    for word in ("items", "additionalProperties"):
        if isinstance(each := schema.get(word), dict):
            errors += everywhere(each, f"{path}.{word}", look)
    return errors


class _AnyMetadata:
    """Metadata within a default is taken as it is."""

    def decode(self, value: Any, path: str, report: Report) -> Any:  # noqa: ARG002 - a Shape is asked for all three
        return value

    def field(self, name: str) -> Field | None:  # noqa: ARG002 - no name is known
        return None

    @property
    def element(self) -> Shape | None:
        return None


def default_errors(schema: Json, path: str) -> list[FieldError]:
    """Returns the errors of the defaults of a structural schema."""
    errors = everywhere(schema, path, _default_errors)
    if "default" in schema:
        errors.append(forbidden(f"{path}.default", "must not be set at the root"))
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    if everywhere(metadata, f"{path}.properties[metadata]", _present):
        errors.append(forbidden(f"{path}.properties[metadata]", "must not have defaults in metadata"))
    return errors


def _present(schema: Json, path: str) -> list[FieldError]:
    return [forbidden(f"{path}.default", "is set")] if "default" in schema else []


def _default_errors(schema: Json, path: str) -> list[FieldError]:
    if "default" not in schema:
        return []
    where, value = f"{path}.default", fresh(schema["default"])
    node, report = Node(schema, _AnyMetadata()), Report()
    kept = node.decode(value, "", report)
    if report.unknown:
        listed = ", ".join(report.unknown)
        return [invalid(where, value, f"must not have unknown fields: {listed}")]
    node.fill(kept, Growth())
    return check_metered(compiled(schema), kept, where)


def selectable_errors(fields: Sequence[Json], schema: Json, path: str) -> list[FieldError]:
    """Returns the errors of a version's selectableFields."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, field in enumerate(fields):
        where, field_path = f"{path}[{index}].jsonPath", field.get("jsonPath", "")
        errors += _selectable_field(field_path, schema, where)
        if field_path in seen:
            errors.append(duplicate(where, field_path))
        seen.add(field_path)
    if len(seen) > MOST_SELECTABLE:
        errors.append(too_many(path, len(seen), MOST_SELECTABLE))
    return errors


def _selectable_field(field_path: str, schema: Json, where: str) -> list[FieldError]:
    if not field_path:
        return [required(where)]
    if "[" in field_path:
        return [invalid(where, field_path, "is an invalid path: array notation is not allowed")]
    words = field_path.removeprefix(".").split(".")
    if words[0] == "metadata":
        return [invalid(where, field_path, "must not point to fields in metadata")]
    field_schema = _field_schema(schema, words) if field_path.startswith(".") else None
    if field_schema is None:
        return [invalid(where, field_path, "is an invalid path: does not refer to a valid field")]
    if field_schema.get("type") not in _SELECTABLE_TYPES:
        detail = (
            "must point to a field of type string, boolean or integer. "
            "Enum string fields and strings with formats are allowed."
        )
        return [invalid(where, field_path, detail)]
    return []


def _field_schema(schema: Json, words: Sequence[str]) -> Json | None:
    for word in words:
        values = schema.get("additionalProperties")
        below = (schema.get("properties") or {}).get(word, values if isinstance(values, dict) else None)
        if not isinstance(below, dict):
            return None
        schema = below
    return schema
