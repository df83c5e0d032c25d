"""OpenAPI v2 (Swagger) made of the parts of v3: its operations and schemas, written as the older version writes them.

Version 2 has no alternatives, no null and no content by media type. What it cannot express is left out, by the rules of
apiextensions-apiserver: kubectl must not reject an object because the document says less than the server knows.
"""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

_JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
_PRODUCES = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]
_STREAMED = [f"{media};stream=watch" for media in ("application/json", "application/vnd.kubernetes.protobuf")]
_PARAMETER = ("name", "in", "description", "required")
_OPEN = "x-kubernetes-preserve-unknown-fields"


def definition(schema: Json) -> dict[str, Any]:
    """Returns a definition as v2 writes it."""
    own = dict(schema)
    if len(reference := own.pop("allOf", ())) == 1:
        own |= reference_of(reference[0])
    if own.pop("oneOf", None):
        own["type"] = "string"  # an IntOrString or a Quantity
    for word in ("items", "additionalProperties"):
        if isinstance(own.get(word), dict):
            own[word] = definition(own[word])
    if "properties" in own:
        own["properties"] = {name: definition(property_) for name, property_ in own["properties"].items()}
    return own


def reference_of(schema: Json) -> dict[str, Any]:
    return {"$ref": schema["$ref"].replace("#/components/schemas/", "#/definitions/")}


def custom_schema(schema: Json) -> dict[str, Any]:
    """Returns a structural schema without what v2 cannot express."""
    own = {word: value for word, value in schema.items() if word not in (*_JUNCTORS, "nullable")}
    properties: Json = own.get("properties") or {}
    values = own.get("additionalProperties")
    required = [name for name in own.get("required") or () if not (properties.get(name) or {}).get("nullable")]
    if isinstance(values, dict) and values.get("nullable"):
        required = []
    if schema.get("nullable"):
        own.pop("type", None)
    if schema.get("nullable") or schema.get(_OPEN):
        own.pop("items", None)
        own.pop("properties", None)
    untyped = (own.get("type") == "array" and "items" not in own) or (own.get("type") == "object" and schema.get(_OPEN))
    if untyped:
        own.pop("type", None)
    own.pop("required", None)
    if required:
        own["required"] = required
    for word in ("items", "additionalProperties"):
        if isinstance(own.get(word), dict):
            own[word] = custom_schema(own[word])
    if "properties" in own:
        own["properties"] = {name: custom_schema(property_) for name, property_ in own["properties"].items()}
    return own


def path_item(item: Json) -> dict[str, Any]:
    """Returns the operations of a path."""
    methods = {method: _operation(operation) for method, operation in item.items() if method != "parameters"}
    return {**methods, "parameters": [_parameter(parameter) for parameter in item["parameters"]]}


def _operation(operation: Json) -> dict[str, Any]:
    own = {word: value for word, value in operation.items() if word != "requestBody"}
    action = operation["x-kubernetes-action"]
    content = operation.get("requestBody", {}).get("content", {})
    parameters = [_parameter(parameter) for parameter in operation["parameters"]]
    if content:
        body = {"name": "body", "in": "body", "schema": reference_of(next(iter(content.values()))["schema"])}
        required = operation["requestBody"].get("required")
        parameters.insert(0, {**body, "required": True} if required else body)
    own["consumes"] = sorted(content) or ["*/*"]
    own["produces"] = ["*/*"] if action == "connect" else _PRODUCES + (_STREAMED if action == "list" else [])
    own["schemes"] = ["https"]
    own["parameters"] = parameters
    own["responses"] = {code: _response(response) for code, response in operation["responses"].items()}
    return own


def _parameter(parameter: Json) -> dict[str, Any]:
    """Returns a parameter, whose type v2 writes beside its name."""
    own = {word: parameter[word] for word in _PARAMETER if word in parameter}
    return {**own, **parameter["schema"]}


def _response(response: Json) -> dict[str, Any]:
    content = response.get("content")
    own = {"description": response["description"]}
    return {**own, "schema": reference_of(next(iter(content.values()))["schema"])} if content else own
