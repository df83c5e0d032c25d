"""Defaults must be values that the schema itself would take and keep."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.crds.checks import compiled
from podwire.kinds.crds.schema_rules import everywhere
from podwire.kinds.crds.structural import Growth, Node, fresh, judged
from podwire.kinds.shape import Field, Report, Shape
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid

Json = Mapping[str, Any]


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
    """What is wrong with the defaults of a structural schema."""
    errors = everywhere(schema, path, _judged)
    if "default" in schema:
        errors.append(forbidden(f"{path}.default", "must not be set at the root"))
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    if everywhere(metadata, f"{path}.properties[metadata]", _present):
        errors.append(forbidden(f"{path}.properties[metadata]", "must not have defaults in metadata"))
    return errors


def _present(schema: Json, path: str) -> list[FieldError]:
    return [forbidden(f"{path}.default", "is set")] if "default" in schema else []


def _judged(schema: Json, path: str) -> list[FieldError]:
    if "default" not in schema:
        return []
    where, value = f"{path}.default", fresh(schema["default"])
    node, report = Node(schema, _AnyMetadata()), Report()
    kept = node.decode(value, "", report)
    if report.unknown:
        listed = ", ".join(report.unknown)
        return [invalid(where, value, f"must not have unknown fields: {listed}")]
    node.fill(kept, Growth())
    return judged(compiled(schema), kept, where)
