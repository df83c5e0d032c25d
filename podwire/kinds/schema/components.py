"""The schemas of an OpenAPI document, from the definitions and from custom resource definitions.

kubernetes-validate has bent the definitions to what JSON Schema validators want: optional properties may be null and
apiVersion and kind are enumerations. That is undone here, and references are written as the API server writes them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from podwire.kinds.schema.definitions import Definitions
from podwire.kinds.schema.swagger import custom_schema
from podwire.protocols.k8sapi.kinds import Kind

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SCHEMAS = "#/components/schemas/"

_DEFINITIONS = "#/$defs/"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_TYPE_WORDS = ("apiVersion", "kind")
_NESTED = ("items", "additionalProperties")
_OPEN = "x-kubernetes-preserve-unknown-fields"
_SELECTABLE = "x-kubernetes-selectable-fields"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"


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


class CustomComponents:
    """Makes the schemas of custom kinds: what every object has is described as for built-in kinds."""

    def __init__(self, definitions: Definitions) -> None:
        config_map = definitions.document("io.k8s.api.core.v1.ConfigMap")["properties"]
        self._type = {word: {"description": config_map[word]["description"], "type": "string"} for word in _TYPE_WORDS}
        self._meta = {
            "description": config_map["metadata"]["description"],
            "allOf": [reference(f"{META}.ObjectMeta")],
        }

    def of(self, kind: Kind, schema: dict[str, Any], *, v2: bool = False) -> dict[str, Any]:
        """Returns a custom kind and its list; for v2 without what that cannot express."""
        schema = schema or {"type": "object", _OPEN: True}
        name = custom_name(kind.group, kind.version, kind.kind)
        gvk = {"group": kind.group, "version": kind.version}
        if v2 and schema.get(_OPEN):
            own: dict[str, Any] = {"type": "object"}  # with any property, kubectl would reject all others
        else:
            own = self._embedded(custom_schema(schema) if v2 else _unfolded(schema), v2=v2)
            own["properties"] = {**own.get("properties", {}), **self._type, "metadata": self._meta}
        own["x-kubernetes-group-version-kind"] = [{**gvk, "kind": kind.kind}]
        items = {
            "type": "array",
            "description": f"List of {kind.resource}. More info: {_CONVENTIONS}",
            "items": {"allOf": [reference(name)]},
        }
        list_meta = {
            "description": f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds",
            "allOf": [reference(f"{META}.ListMeta")],
        }
        listed = {
            "type": "object",
            "description": f"{kind.list_kind} is a list of {kind.kind}",
            "required": ["items"],
            "properties": {**self._type, "metadata": list_meta, "items": items},
            "x-kubernetes-group-version-kind": [{**gvk, "kind": kind.list_kind}],
        }
        if _SELECTABLE in schema:
            own[_SELECTABLE] = listed[_SELECTABLE] = schema[_SELECTABLE]
        return {name: own, custom_name(kind.group, kind.version, kind.list_kind): listed}

    def _embedded(self, schema: dict[str, Any], *, v2: bool) -> dict[str, Any]:
        """Adds apiVersion, kind and metadata to the objects that a schema embeds."""
        own = dict(schema)
        if "properties" in own:
            own["properties"] = {name: self._embedded(part, v2=v2) for name, part in own["properties"].items()}
        for word in _NESTED:
            if isinstance(own.get(word), dict):
                own[word] = self._embedded(own[word], v2=v2)
        if own.get("x-kubernetes-embedded-resource") and not (v2 and own.get(_OPEN)):
            texts = {
                "apiVersion": f"apiVersion defines the versioned schema of this representation of an object. "
                f"More info: {_CONVENTIONS}#resources",
                "kind": f"kind is a string value representing the type of this object. In CamelCase. "
                f"More info: {_CONVENTIONS}#types-kinds",
            }
            identity = {word: {"type": "string", "description": text} for word, text in texts.items()}
            own["properties"] = {**own.get("properties", {}), **identity, "metadata": self._meta}
            own["required"] = [*dict.fromkeys([*own.get("required", ()), "kind", "apiVersion"])]
        return own


def _unfolded(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a structural schema in which an IntOrString says so in the words of JSON Schema, too."""
    own = dict(schema)
    if own.get("x-kubernetes-int-or-string") and not own.get("anyOf"):
        own["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in own:
        own["properties"] = {name: _unfolded(part) for name, part in own["properties"].items()}
    for word in _NESTED:
        if isinstance(own.get(word), dict):
            own[word] = _unfolded(own[word])
    return own
