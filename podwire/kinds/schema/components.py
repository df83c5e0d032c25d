"""The schemas of an OpenAPI v3 document, from the definitions and from custom resource definitions.

kubernetes-validate has bent the definitions to what JSON Schema validators want: optional properties may be null and
apiVersion and kind are enumerations. That is undone here, and references are written as the API server writes them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from podwire.kinds.schema.definitions import Definitions
from podwire.protocols.k8sapi.kinds import Kind

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SCHEMAS = "#/components/schemas/"

_DEFINITIONS = "#/$defs/"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_TYPE_WORDS = ("apiVersion", "kind")
_NESTED = ("items", "additionalProperties")


def components(definitions: Definitions, names: Iterable[str]) -> dict[str, Any]:
    """Returns the named definitions and all that they refer to."""
    schemas: dict[str, Any] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in schemas or name not in definitions:
            continue
        schemas[name] = _definition(name, definitions.document(name))
        pending.extend(_references(schemas[name]))
    return dict(sorted(schemas.items()))


def _definition(name: str, document: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(document)
    if name == _INT_OR_STRING:
        schema["format"] = "int-or-string"
    if "x-kubernetes-group-version-kind" in schema:
        for word in _TYPE_WORDS:
            schema.get("properties", {}).get(word, {}).pop("enum", None)
    return schema


def _schema(document: dict[str, Any]) -> dict[str, Any]:
    schema = dict(document)
    if isinstance(schema.get("type"), list):
        schema["type"] = next(kind for kind in schema["type"] if kind != "null")
    if isinstance(schema.get("$ref"), str):
        schema["allOf"] = [reference(schema.pop("$ref").removeprefix(_DEFINITIONS))]
    if "properties" in schema:
        schema["properties"] = {name: _schema(property_) for name, property_ in schema["properties"].items()}
    if "oneOf" in schema:
        schema["oneOf"] = [_schema(part) for part in schema["oneOf"]]
    for word in _NESTED:
        if isinstance(schema.get(word), dict):
            schema[word] = _schema(schema[word])
    return schema


def _references(schema: dict[str, Any]) -> Iterator[str]:
    for part in schema.get("allOf", ()):
        yield part["$ref"].removeprefix(SCHEMAS)
    for property_ in schema.get("properties", {}).values():
        yield from _references(property_)
    for word in _NESTED:
        if isinstance(schema.get(word), dict):
            yield from _references(schema[word])


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"{SCHEMAS}{name}"}


def custom_name(group: str, version: str, kind: str) -> str:
    """Returns the group's labels in reverse order, as Java would: com.example.v1.Widget."""
    return ".".join((*reversed(group.split(".")), version, kind))


def custom_components(kind: Kind, schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a custom kind and its list; what every object has is added to the schema of its definition."""
    name = custom_name(kind.group, kind.version, kind.kind)
    gvk = {"group": kind.group, "version": kind.version}
    own = dict(schema) or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    own["properties"] = {
        **_OBJECT,
        **{key: property_ for key, property_ in own.get("properties", {}).items() if key not in _OBJECT},
    }
    own["x-kubernetes-group-version-kind"] = [{**gvk, "kind": kind.kind}]
    items = {"type": "array", "description": f"The objects: {kind.resource}.", "items": {"allOf": [reference(name)]}}
    listed = {
        "type": "object",
        "description": f"A list of {kind.resource}.",
        "required": ["items"],
        "properties": {**_LIST, "items": items},
        "x-kubernetes-group-version-kind": [{**gvk, "kind": kind.list_kind}],
    }
    return {name: own, f"{name}List": listed}


_TYPE: dict[str, Any] = {
    "apiVersion": {"type": "string", "description": "The group and version in which this object is written."},
    "kind": {"type": "string", "description": "What this object is, in CamelCase."},
}
_OBJECT = {
    **_TYPE,
    "metadata": {
        "description": "Name, labels and what else every object has.",
        "allOf": [reference(f"{META}.ObjectMeta")],
    },
}
_LIST = {
    **_TYPE,
    "metadata": {"description": "Where in time this list was taken.", "allOf": [reference(f"{META}.ListMeta")]},
}
