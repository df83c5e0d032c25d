"""OpenAPI v2: one document of everything, in JSON and protobuf, with custom schemas as v2 can express them."""

import json
from functools import cache
from typing import Any

import pytest

from podwire.kinds.schema.openapi import OpenApi
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason

WIDGET = Kind(group="example.com", version="v1", resource="widgets", kind="Widget", singular="widget")
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
GVK = "x-kubernetes-group-version-kind"


def v2_of(openapi: OpenApi) -> Any:
    return json.loads(openapi.v2("application/json").body)


def widget(schema: dict[str, Any]) -> dict[str, Any]:
    """The published definition, without what every object has."""
    openapi = OpenApi([])
    openapi.replace_custom([(WIDGET, schema)])
    published = v2_of(openapi)["definitions"]["com.example.v1.Widget"]
    assert published.pop(GVK) == [{"group": "example.com", "version": "v1", "kind": "Widget"}]
    for word in ("apiVersion", "kind", "metadata"):
        published.get("properties", {}).pop(word, None)
    return published


def test_the_document_refers_only_to_definitions_that_it_contains():
    openapi = OpenApi(BUILTIN.all)
    openapi.replace_custom([(WIDGET, {"type": "object"})])
    document = v2_of(openapi)
    text = json.dumps(document)

    references = {part.partition('"')[0] for part in text.split("#/definitions/")[1:]}

    assert references <= set(document["definitions"])
    assert "#/components/" not in text
    assert "oneOf" not in document["definitions"]["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]


@pytest.mark.parametrize("kind", BUILTIN.all, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_every_kind_has_a_definition_and_operations(kind):
    document = document_of_all()
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}

    defined = [name for name, schema in document["definitions"].items() if gvk in schema.get(GVK, [])]
    operations = [
        operation
        for item in document["paths"].values()
        for method, operation in item.items()
        if method != "parameters" and operation[GVK] == gvk
    ]

    assert len(defined) == 1
    assert operations
    assert all(operation["x-kubernetes-action"] and operation["produces"] for operation in operations)


ALL = OpenApi(BUILTIN.all)


@cache
def document_of_all() -> Any:
    return v2_of(ALL)


def test_a_body_is_a_parameter_and_a_patch_names_its_formats():
    deployment = document_of_all()["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    body = next(parameter for parameter in deployment["put"]["parameters"] if parameter["in"] == "body")

    assert body["schema"] == {"$ref": "#/definitions/io.k8s.api.apps.v1.Deployment"}
    assert body["required"] is True
    assert deployment["put"]["responses"]["201"]["schema"] == body["schema"]
    assert "application/strategic-merge-patch+json" in deployment["patch"]["consumes"]
    assert {"name": "name", "in": "path", "required": True, "type": "string", "uniqueItems": True} in deployment[
        "parameters"
    ]


def test_a_custom_schema_is_published_as_it_is():
    schema = {
        "type": "object",
        "description": "A widget.",
        "properties": {"spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}}}},
    }

    assert widget(schema) == schema


@pytest.mark.parametrize(
    ("given", "published"),
    [
        ({"type": "object", "nullable": True, "properties": {"a": {"type": "string"}}}, {}),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "string"}}},
            {"x-kubernetes-preserve-unknown-fields": True},
        ),
        ({"type": "array", "x-kubernetes-preserve-unknown-fields": True, "items": {"type": "string"}},
         {"x-kubernetes-preserve-unknown-fields": True}),
        ({"type": "integer", "anyOf": [{"minimum": 1}], "not": {"maximum": 2}}, {"type": "integer"}),
        ({"x-kubernetes-int-or-string": True}, {"x-kubernetes-int-or-string": True}),
        (
            {"type": "object", "required": ["a", "b"],
             "properties": {"a": {"type": "string", "nullable": True}, "b": {"type": "string"}}},
            {"type": "object", "required": ["b"], "properties": {"a": {}, "b": {"type": "string"}}},
        ),
        (
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        ),
    ],
)  # fmt: skip
def test_words_that_v2_does_not_have_are_left_out(given, published):
    assert widget({"type": "object", "properties": {"spec": given}})["properties"]["spec"] == published


def test_a_kind_that_keeps_unknown_fields_is_any_object():
    open_ = {"type": "object", "description": "Any.", "x-kubernetes-preserve-unknown-fields": True}

    assert widget({**open_, "properties": {"spec": {"type": "object"}}}) == {"type": "object"}


def test_an_embedded_object_has_the_fields_of_every_object():
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"data": {"type": "string"}}}

    published = widget({"type": "object", "properties": {"inner": embedded}})["properties"]["inner"]

    assert set(published["properties"]) == {"apiVersion", "data", "kind", "metadata"}
    assert published["required"] == ["kind", "apiVersion"]


def test_the_tag_changes_with_the_custom_kinds_and_with_the_form():
    openapi = OpenApi(BUILTIN.all)
    before = openapi.v2_hash("")
    openapi.replace_custom([(WIDGET, {"type": "object"})])

    assert openapi.v2_hash("") != before
    assert openapi.v2_hash("") != openapi.v2_hash(PROTOBUF)
    assert openapi.v2("").etag == f'"{openapi.v2_hash("")}"'
    openapi.replace_custom([])
    assert openapi.v2_hash("") == before


def test_a_rendered_document_is_kept_until_something_changes():
    openapi = OpenApi(BUILTIN.all)
    first = openapi.v2("")
    openapi.replace_custom([])

    assert openapi.v2("") is first
    assert not first.plain
    openapi.replace_custom([(WIDGET, {"type": "object"})])
    assert openapi.v2("") is not first


def test_protobuf_has_the_same_definitions_and_paths():
    openapi = OpenApi([])
    openapi.replace_custom([(WIDGET, {"type": "object", "description": "A widget."})])
    published = openapi.v2(PROTOBUF)

    fields = _fields(published.body)
    definitions = dict(_named(entry) for number, entry in _fields(dict(fields)[9]) if number == 1)
    widget_fields = dict(_fields(definitions["com.example.v1.Widget"]))
    assert published.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert fields[0] == (1, b"2.0")
    assert widget_fields[4] == b"A widget."
    assert _fields(widget_fields[22]) == [(1, b"object")]
    extension = dict(_fields(widget_fields[31]))
    assert extension[1] == GVK.encode()
    assert json.loads(dict(_fields(extension[2]))[2]) == [{"group": "example.com", "version": "v1", "kind": "Widget"}]
    paths = dict(_named(entry) for number, entry in _fields(dict(fields)[8]) if number == 2)
    assert set(paths) == set(v2_of(openapi)["paths"])


def _named(entry: bytes) -> tuple[str, bytes]:
    fields = dict(_fields(entry))
    return fields[1].decode(), fields[2]


def _fields(message: bytes) -> list[tuple[int, bytes]]:
    """The fields of a message that have a size; numbers are passed over."""
    found, at = [], 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 2:
            size, at = _varint(message, at)
            found.append((key >> 3, message[at : at + size]))
            at += size
        else:
            _, at = _varint(message, at)
    assert at == len(message)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while message[at] > 127:
        number |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | message[at] << shift, at + 1


def test_an_unsupported_form_is_rejected():
    with pytest.raises(ApiError) as refused:
        ALL.v2("text/html")
    assert refused.value.reason is Reason.NOT_ACCEPTABLE
