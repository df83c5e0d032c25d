"""A structural schema as CEL knows it: its type, how large its values can be, and how they are handed over.

Rules cannot use fields that the schema does not describe, fields of any type, and names that CEL cannot express.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from podwire.protocols.cel import types
from podwire.protocols.cel.cost import Size
from podwire.protocols.cel.types import Type

Json = Mapping[str, Any]
Convert = Callable[[Any], Any]

LARGEST_REQUEST = 3 * 1024 * 1024
_LONGEST_STRING = LARGEST_REQUEST - 2
NOTHING = Size(0)
"""The size of values without parts: upstream counts comparing them as free."""

_RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile("|".join(map(re.escape, _ESCAPES)))
_WRITABLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_TEXT = {"type": "string"}
_IDENTITY: Mapping[str, Json] = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}},
}
"""The fields of every object that rules can read, whatever the schema says of them."""


@dataclass(frozen=True, slots=True)
class Declared:
    """`least` is how many bytes a value takes in JSON; `convert` is None for what is handed over as it is."""

    type: Type
    size: Size
    least: int
    convert: Convert | None = None


def escape(name: str) -> str | None:
    """Returns a field's name as rules write it; None for a name that CEL cannot express."""
    if name in _RESERVED:
        return f"__{name}__"
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], name) if _WRITABLE.fullmatch(name) else None


def declare(schema: Json, *, root: bool = False) -> Declared | None:
    """Returns the CEL type of a schema; None when rules cannot be used on it."""
    if schema.get("x-kubernetes-int-or-string"):
        return Declared(types.DYN, Size(_length(schema)), 1)
    if root:
        schema = {**schema, "properties": {**(schema.get("properties") or {}), **_IDENTITY}}
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return _map(schema)
        case "object":
            return _object(schema, whole=not root)
        case "string":
            return _string(schema)
        case "boolean":
            return Declared(types.BOOL, NOTHING, 4)
        case "number":
            return Declared(types.DOUBLE, NOTHING, 1, _as_double)
        case "integer":
            return Declared(types.INT, NOTHING, 1, _as_int)
    return None


def _below(schema: Json) -> Declared | None:
    return declare(schema, root=bool(schema.get("x-kubernetes-embedded-resource")))


def _list(schema: Json) -> Declared | None:
    items = _below(schema.get("items") or {})
    if items is None:
        return None
    most = _limit(schema, "maxItems", (LARGEST_REQUEST - 2) // (items.least + 1))
    convert = None
    if (each := items.convert) is not None:

        def convert(value: Any) -> Any:
            return list(map(each, value)) if isinstance(value, list) else value

    return Declared(types.list_of(items.type), Size(most, items.size), 2, convert)


def _map(schema: Json) -> Declared | None:
    values = _below(schema["additionalProperties"])
    if values is None:
        return None
    most = _limit(schema, "maxProperties", (LARGEST_REQUEST - 2) // (values.least + 6))
    convert = None
    if (each := values.convert) is not None:

        def convert(value: Any) -> Any:
            return {key: each(one) for key, one in value.items()} if isinstance(value, dict) else value

    key = Size(0)  # as upstream: nothing bounds keys, and rules over maps would all exceed the budget
    return Declared(types.map_of(types.STRING, values.type), Size(most, values.size, key), 2, convert)


def _object(schema: Json, *, whole: bool) -> Declared:
    """Returns the type of an object; null fields are absent for rules. Not `whole`: only the listed fields of
    metadata."""
    fields: list[tuple[str, Type]] = []
    sizes: dict[str, Size] = {}
    moves: dict[str, tuple[str, Convert | None]] = {}
    least = 2
    needed = schema.get("required") or ()
    for name, below in (schema.get("properties") or {}).items():
        if (declared := _below(below)) is None:
            continue
        if (written := escape(name)) is not None:
            fields.append((written, declared.type))
            sizes[written] = declared.size
            moves[name] = (written, declared.convert)
        if name in needed and "default" not in below:
            least += len(name) + declared.least + 4
    plain = whole and all(name == written and not convert for name, (written, convert) in moves.items())
    nullable = any(below.get("nullable") for below in (schema.get("properties") or {}).values())
    convert = None if plain and not nullable else _moving(moves)
    return Declared(types.struct(fields), Size(0, fields=sizes), least, convert)


def _moving(moves: Mapping[str, tuple[str, Convert | None]]) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        moved = {}
        for name, member in value.items():
            if member is not None and name in moves:
                written, below = moves[name]
                moved[written] = below(member) if below else member
        return moved

    return convert


def _string(schema: Json) -> Declared:
    match schema.get("format"):
        case "byte":
            return Declared(types.BYTES, Size(_limit(schema, "maxLength", _LONGEST_STRING)), 2, _as_bytes)
        case "duration":
            return Declared(types.DURATION, Size(32), 3, _as_duration)
        case "date":
            return Declared(types.TIMESTAMP, Size(12), 12, _as_date)
        case "date-time":
            return Declared(types.TIMESTAMP, Size(32), 21, _as_time)
    return Declared(types.STRING, Size(_length(schema)), 2)


def _length(schema: Json) -> int:
    """Bytes of a text at most: a character takes up to four."""
    if isinstance(schema.get("maxLength"), int):
        return max(int(schema["maxLength"]), 0) * 4
    allowed = [choice for choice in schema.get("enum") or () if isinstance(choice, str)]
    return max(map(len, allowed)) if allowed else _LONGEST_STRING


def _limit(schema: Json, word: str, otherwise: int) -> int:
    limit = schema.get(word)
    return max(limit, 0) if isinstance(limit, int) else otherwise


def _as_double(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_int(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("Invalid bytes: not base64") from None


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"([+-]?)((?:{_PART.pattern})+|0)")


def _as_duration(value: Any) -> Any:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"Invalid duration {value}: not a duration")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    return _kept(timedelta(seconds=-seconds if match[1] == "-" else seconds))


def _as_date(value: Any) -> Any:
    try:
        return _kept(datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC))
    except (ValueError, TypeError):
        raise ValueError(f"Invalid date formatted string {value}") from None


def _as_time(value: Any) -> Any:
    try:
        return _kept(datetime.fromisoformat(value))
    except (ValueError, TypeError):
        raise ValueError(f"Invalid date-time formatted string {value}") from None


def _kept(value: Any) -> Any:
    from podwire.protocols.cel.environment import kept  # noqa: PLC0415 - protobuf, when there is a time to convert

    return kept(value)
