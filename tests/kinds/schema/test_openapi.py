"""OpenAPI documents: whole, free of what validators wanted, and new only when something changed."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from podwire.kinds.schema.openapi import OpenApi
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

WIDGET = Kind(group="example.com", version="v1", resource="widgets", kind="Widget", singular="widget")
OPENAPI = OpenApi(BUILTIN.all)
PATHS = sorted({f"apis/{kind.api_version}" if kind.group else "api/v1" for kind in BUILTIN.all})


def document_of(path: str, openapi: OpenApi = OPENAPI) -> Any:
    document = openapi.document(path)
    assert document is not None
    return json.loads(document.body)


def hashes(openapi: OpenApi) -> dict[str, str]:
    urls = json.loads(openapi.index())["paths"]
    return {path: each["serverRelativeURL"].partition("?hash=")[2] for path, each in urls.items()}


def operations(document: Any) -> Iterator[Any]:
    for path in document["paths"].values():
        yield from (operation for method, operation in path.items() if method != "parameters")


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)


def test_the_index_names_every_group_and_version():
    urls = json.loads(OPENAPI.index())["paths"]
    assert sorted(urls) == PATHS
    assert all(each["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=") for path, each in urls.items())


@pytest.mark.parametrize("path", PATHS)
def test_a_document_refers_only_to_schemas_that_it_contains(path):
    document = document_of(path)
    references = {node["$ref"] for node in walk(document) if isinstance(node.get("$ref"), str)}
    names = {f"#/components/schemas/{schema}" for schema in document["components"]["schemas"]}
    assert references
    assert references <= names


@pytest.mark.parametrize("path", PATHS)
def test_a_document_has_no_null_types_and_no_enumerated_kinds(path):
    schemas = document_of(path)["components"]["schemas"]
    assert not any(isinstance(node.get("type"), list) for node in walk(schemas))
    assert not any("enum" in node for node in walk(schemas) if isinstance(node.get("enum"), list))


@pytest.mark.parametrize("kind", BUILTIN.all, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_kubectl_finds_the_schema_and_the_options_of_every_kind(kind):
    document = document_of(f"apis/{kind.api_version}" if kind.group else "api/v1")
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    schemas = document["components"]["schemas"].values()
    assert [schema for schema in schemas if gvk in schema.get("x-kubernetes-group-version-kind", [])]
    for action in {"patch", "post", "put"} & {_ACTIONS.get(verb, verb) for verb in kind.verbs}:
        found = [
            {parameter["name"] for parameter in operation["parameters"]}
            for operation in operations(document)
            if (operation["x-kubernetes-action"], operation["x-kubernetes-group-version-kind"]) == (action, gvk)
        ]
        assert found
        assert all({"dryRun", "fieldManager", "fieldValidation"} <= item for item in found)


_ACTIONS = {"create": "post", "update": "put"}


@pytest.mark.parametrize("path", PATHS)
def test_operations_have_names_of_their_own(path):
    names = [operation["operationId"] for operation in operations(document_of(path))]
    assert len(names) == len(set(names))


def test_paths_are_those_of_the_api():
    document = document_of("api/v1")
    pods = document["paths"]["/api/v1/namespaces/{namespace}/pods"]
    assert {method: each["x-kubernetes-action"] for method, each in pods.items() if method != "parameters"} == {
        "get": "list",
        "post": "post",
        "delete": "deletecollection",
    }
    assert set(document["paths"]["/api/v1/pods"]) == {"get", "parameters"}
    assert set(document["paths"]["/api/v1/nodes/{name}"]) == {"get", "put", "patch", "delete", "parameters"}
    exec_ = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/exec"]["get"]
    assert exec_["x-kubernetes-action"] == "connect"
    eviction = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"]
    assert eviction["x-kubernetes-group-version-kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert "/api/v1/bindings" not in document["paths"]


def test_schemas_keep_merge_keys_descriptions_and_either_types():
    schemas = document_of("api/v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["description"]
    assert containers["items"] == {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]}
    assert schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] == {
        "oneOf": [{"type": "string"}, {"type": "integer"}],
        "format": "int-or-string",
    }


def test_a_document_requested_by_its_hash_may_be_cached_forever():
    known = hashes(OPENAPI)["api/v1"]
    kept, asked_again = OPENAPI.document("api/v1", known), OPENAPI.document("api/v1", "OLD")
    assert kept is not None
    assert asked_again is not None
    assert dict(kept.headers) == {"ETag": f'"{known}"', "Cache-Control": "public, immutable", "Vary": "Accept"}
    assert asked_again.cache_control == "no-cache, private"
    assert kept.gzipped is asked_again.gzipped
    assert gzip.decompress(kept.gzipped) == kept.body
    assert not kept.plain


def test_an_unknown_document_is_not_there():
    assert OPENAPI.document("apis/example.com/v1") is None


def test_changing_custom_kinds_leaves_other_documents_alone():
    openapi = OpenApi(BUILTIN.all)
    before = hashes(openapi)
    pods = openapi.document("api/v1")
    assert pods is not None
    openapi.replace_custom([(WIDGET, {"type": "object"})])
    first = hashes(openapi)
    openapi.replace_custom([(WIDGET, {"type": "object", "description": "A widget."})])
    second = hashes(openapi)
    again = openapi.document("api/v1")
    assert again is not None
    assert again.gzipped is pods.gzipped
    assert first["apis/example.com/v1"] != second["apis/example.com/v1"]
    assert document_of("apis/example.com/v1", openapi)["components"]["schemas"]["com.example.v1.Widget"]["description"]
    openapi.replace_custom([])
    assert hashes(openapi) == before
    assert openapi.document("apis/example.com/v1") is None


def test_a_custom_kind_has_the_fields_of_every_object():
    openapi = OpenApi([])
    schema = {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "string"}}}
    openapi.replace_custom([(WIDGET, schema)])
    document = document_of("apis/example.com/v1", openapi)
    schemas = document["components"]["schemas"]
    own = schemas["com.example.v1.Widget"]
    assert set(own["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert own["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    assert own["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Widget"}]
    answer = document["paths"]["/apis/example.com/v1/widgets"]["get"]["responses"]["200"]["content"]
    assert answer["application/json"]["schema"] == {"$ref": "#/components/schemas/com.example.v1.WidgetList"}
    assert "com.example.v1.WidgetList" in schemas
    assert schema == {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "string"}}}


def test_a_custom_kind_without_a_schema_may_hold_anything():
    openapi = OpenApi([])
    openapi.replace_custom([(WIDGET, {})])
    own = document_of("apis/example.com/v1", openapi)["components"]["schemas"]["com.example.v1.Widget"]
    assert own["x-kubernetes-preserve-unknown-fields"] is True
