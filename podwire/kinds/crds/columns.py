"""A custom resource's table: the name, then the columns that its definition asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.kinds.crds.jsonpath import Path, compile_path
from podwire.objects.times import human_duration, parse

Json = Mapping[str, Any]

_NAME = {"name": "Name", "type": "string", "format": "name", "description": "The name of the object.", "priority": 0}
_AGE: Json = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "How long ago the object was created.",
}
_NAME_PATH = compile_path(".metadata.name")


@dataclass(frozen=True, slots=True)
class Columns:
    """The compiled columns of one version."""

    definitions: list[dict[str, Any]]
    _paths: tuple[tuple[str, Path], ...]

    def cells(self, obj: Json, now: float) -> list[Any]:
        """Returns one row, in the order of the definitions. An absent value is null, which kubectl shows as
        `<none>`."""
        return [_NAME_PATH.first(obj), *(_cell(kind, path.find(obj), now) for kind, path in self._paths)]


def columns_of(version: Json) -> Columns:
    """Returns the columns of an entry of `spec.versions`; a definition without columns shows the age."""
    asked = version.get("additionalPrinterColumns") or [_AGE]
    definitions = [_NAME, *map(_definition, asked)]
    return Columns(definitions, tuple((str(column.get("type")), compile_path(column["jsonPath"])) for column in asked))


def _definition(column: Json) -> dict[str, Any]:
    return {
        "name": column.get("name", ""),
        "type": column.get("type", ""),
        "format": column.get("format", ""),
        "description": column.get("description")
        or f"Custom resource definition column (in JSONPath format): {column.get('jsonPath', '')}",
        "priority": column.get("priority", 0),
    }


def _cell(kind: str, values: list[Any], now: float) -> Any:
    if not values:
        return None
    if kind == "string":
        return " ".join(map(_text, values))
    value = values[0]
    if kind == "date":
        return _age(value, now)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if kind == "integer" else value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "<nil>" if value is None else msgspec.json.encode(value).decode()


def _age(value: Any, now: float) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return human_duration(now - parse(value))
    except ValueError:
        return "<invalid>"
