"""Fields that clients may select custom resources by."""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.protocols.k8sapi.status import FieldError, duplicate, invalid, required, too_many

Json = Mapping[str, Any]

MOST = 8
_SCALARS = ("boolean", "integer", "string")


def selectable_errors(fields: Sequence[Json], schema: Json, path: str) -> list[FieldError]:
    """What is wrong with a version's selectableFields."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, each in enumerate(fields):
        where, told = f"{path}[{index}].jsonPath", each.get("jsonPath", "")
        errors += _field(told, schema, where)
        if told in seen:
            errors.append(duplicate(where, told))
        seen.add(told)
    if len(seen) > MOST:
        errors.append(too_many(path, len(seen), MOST))
    return errors


def _field(told: str, schema: Json, where: str) -> list[FieldError]:
    if not told:
        return [required(where)]
    if "[" in told:
        return [invalid(where, told, "is an invalid path: array notation is not allowed")]
    words = told.removeprefix(".").split(".")
    if words[0] == "metadata":
        return [invalid(where, told, "must not point to fields in metadata")]
    found = _found(schema, words) if told.startswith(".") else None
    if found is None:
        return [invalid(where, told, "is an invalid path: does not refer to a valid field")]
    if found.get("type") not in _SCALARS:
        detail = (
            "must point to a field of type string, boolean or integer. "
            "Enum string fields and strings with formats are allowed."
        )
        return [invalid(where, told, detail)]
    return []


def _found(schema: Json, words: Sequence[str]) -> Json | None:
    for word in words:
        values = schema.get("additionalProperties")
        below = (schema.get("properties") or {}).get(word, values if isinstance(values, dict) else None)
        if not isinstance(below, dict):
            return None
        schema = below
    return schema
