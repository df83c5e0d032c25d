"""The `fieldPath` of a rule: below its schema, by names and keys: `.spec.limits['cpu']`."""

import re
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

_STEP = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class BadFieldPath(ValueError):
    """A path that leads nowhere in its schema."""


def normalized(path: str, schema: Json) -> str:
    """The path as errors tell it, without its first dot. Raises BadFieldPath."""
    place, told = 0, ""
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise BadFieldPath("must be a valid path")
        name = step[1] if step[1] is not None else _ESCAPE.sub(_unescaped, step[2])
        schema, named = _entered(schema, name)
        told += f".{name}" if named else f"[{name}]"
        place = step.end()
    return told.removeprefix(".")


def _entered(schema: Json, name: str) -> tuple[Json, bool]:
    """The schema of a field, or of a map's values."""
    properties, values = schema.get("properties"), schema.get("additionalProperties")
    if properties:
        if name in properties:
            return properties[name], True
    elif isinstance(values, dict):
        return values, False
    raise BadFieldPath("must be a valid path")


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPES:
        raise BadFieldPath("must be a valid path")
    return _ESCAPES[found[1]]
