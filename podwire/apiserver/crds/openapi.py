"""Custom resources in the OpenAPI documents, for `kubectl explain` and for clients that check before they send."""

from collections.abc import Mapping
from typing import Any

from podwire.apiserver.crds.kinds import kinds_of
from podwire.protocols.k8sapi.kinds import Kind

Json = Mapping[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_V3 = "#/components/schemas/"
_V2 = "#/definitions/"
_UNKNOWN_TO_V2 = ("allOf", "anyOf", "default", "not", "nullable", "oneOf")
_API_VERSION = "The version of this object's schema, as group and version; servers convert what they recognize."
_KIND = "The REST resource that this object represents, in CamelCase. Cannot be changed."


def schema_name(kind: Kind) -> str:
    """The name under which a kind's schema is published: the group's words turned round."""
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def openapi_schemas(crd: Json, *, v2: bool = False) -> dict[str, dict[str, Any]]:
    """Schemas by name, two for each served version: the object and its list. References point into a document of
    that OpenAPI version; in a v2 document what its readers do not understand is left out."""
    schemas = {
        each["name"]: (each.get("schema") or {}).get("openAPIV3Schema") or {} for each in crd["spec"]["versions"]
    }
    root, published = _V2 if v2 else _V3, {}
    for kind in kinds_of(crd):
        schema = _for_v2(schemas[kind.version]) if v2 else dict(schemas[kind.version])
        name = schema_name(kind)
        published[name] = _object(schema, kind, root)
        published[f"{name.removesuffix(kind.kind)}{kind.list_kind}"] = _list(kind, f"{root}{name}", root)
    return published


def _object(schema: dict[str, Any], kind: Kind, root: str) -> dict[str, Any]:
    own = _identity(f"{root}{_META}.ObjectMeta", "Standard object's metadata.")
    gvk = {"x-kubernetes-group-version-kind": [_gvk(kind, kind.kind)]}
    if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
        return {**schema, **gvk}
    return {**schema, "type": "object", "properties": {**(schema.get("properties") or {}), **own}, **gvk}


def _list(kind: Kind, reference: str, root: str) -> dict[str, Any]:
    items = {"description": f"List of {kind.resource}.", "type": "array", "items": {"$ref": reference}}
    return {
        "description": f"{kind.list_kind} is a list of {kind.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {**_identity(f"{root}{_META}.ListMeta", "Standard list metadata."), "items": items},
        "x-kubernetes-group-version-kind": [_gvk(kind, kind.list_kind)],
    }


def _identity(metadata: str, description: str) -> dict[str, Any]:
    return {
        "apiVersion": {"description": _API_VERSION, "type": "string"},
        "kind": {"description": _KIND, "type": "string"},
        "metadata": {"description": description, "allOf": [{"$ref": metadata}]}
        if metadata.startswith(_V3)
        else {"description": description, "$ref": metadata},
    }


def _gvk(kind: Kind, name: str) -> dict[str, str]:
    return {"group": kind.group, "kind": name, "version": kind.version}


def _for_v2(schema: Json) -> dict[str, Any]:
    """A schema as v2 readers can take it: where anything may be, nothing is said of it."""
    if schema.get("nullable"):
        return {word: schema[word] for word in ("description",) if word in schema}
    kept = {word: value for word, value in schema.items() if word not in _UNKNOWN_TO_V2}
    if schema.get("x-kubernetes-int-or-string"):
        kept.pop("type", None)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        kept = {word: value for word, value in kept.items() if word not in ("items", "properties", "required")}
    if isinstance(properties := kept.get("properties"), dict):
        kept["properties"] = {name: _for_v2(each) for name, each in properties.items()}
    for word in ("items", "additionalProperties"):
        if isinstance(below := kept.get(word), dict):
            kept[word] = _for_v2(below)
    return kept
