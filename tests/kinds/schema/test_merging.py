"""OpenAPI v2 documents of other servers are merged by upstream's rules."""

import copy

import pytest

from podwire.kinds.schema.merging import GVK, merge, part_of
from podwire.kinds.schema.openapi import other_part

FLUNDER = {"type": "object", "properties": {"metadata": {"$ref": "#/definitions/Meta"}}}
DOCUMENT = {
    "swagger": "2.0",
    "paths": {
        "/apis/wardle.example.com/v1/flunders": {
            "parameters": [{"$ref": "#/parameters/pretty"}],
            "get": {"responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Flunder"}}}},
        },
        "/apis/wardle.example.com/v2/flunders": {"get": {"responses": {}}},
        "/version": {"get": {"responses": {"200": {"description": "", "schema": {"$ref": "#/definitions/Info"}}}}},
    },
    "definitions": {"Flunder": FLUNDER, "Meta": {"type": "object"}, "Info": {}, "Unused": {}},
    "parameters": {"pretty": {"in": "query", "name": "pretty", "type": "string"}, "other": {}},
}
PREFIX = "/apis/wardle.example.com/v1/"
PATH = f"{PREFIX}flunders"


def whole(**definitions: object) -> dict[str, object]:
    return {"swagger": "2.0", "paths": {"/api/": {}}, "definitions": dict(definitions)}


def test_a_part_has_what_its_paths_need():
    part = part_of(DOCUMENT, PREFIX)

    assert list(part["paths"]) == [PATH]
    assert (set(part["definitions"]), set(part["parameters"])) == ({"Flunder", "Meta"}, {"pretty"})


def test_names_that_are_free_or_have_the_same_content_stay():
    document = whole(Meta={"type": "object"})
    merge(document, part_of(DOCUMENT, PREFIX))

    assert document["definitions"] == {"Meta": {"type": "object"}, "Flunder": FLUNDER}
    assert set(document["paths"]) == {"/api/", PATH}
    assert document["parameters"] == {"pretty": DOCUMENT["parameters"]["pretty"]}


def test_another_content_gets_another_name_everywhere():
    ours = {"type": "object", "description": "ours"}
    document = {**whole(Meta=ours, Meta_v2=ours, Flunder=ours), "parameters": {"pretty": {"name": "ours"}}}
    part = part_of(DOCUMENT, PREFIX)
    before = copy.deepcopy(part)
    merge(document, part)

    definitions, item = document["definitions"], document["paths"][PATH]
    assert part == before
    assert (definitions["Meta"], definitions["Meta_v3"]) == (ours, {"type": "object"})
    assert definitions["Flunder_v2"]["properties"]["metadata"] == {"$ref": "#/definitions/Meta_v3"}
    assert item["get"]["responses"]["200"]["schema"] == {"$ref": "#/definitions/Flunder_v2"}
    assert item["parameters"] == [{"$ref": "#/parameters/pretty_v2"}]


def test_a_renamed_definition_is_used_again():
    document = whole(Meta={"description": "ours"}, Meta_v2={"type": "object"})
    merge(document, part_of(DOCUMENT, PREFIX))

    assert set(document["definitions"]) == {"Meta", "Meta_v2", "Flunder"}


def test_kinds_of_equal_definitions_are_joined():
    one, two = [{"group": "a", "version": "v1", "kind": "DeleteOptions"}], [{"group": "b", "kind": "DeleteOptions"}]
    document = whole(Meta={"type": "object", GVK: one})
    other = copy.deepcopy(DOCUMENT)
    other["definitions"]["Meta"][GVK] = [*one, *two]
    merge(document, part_of(other, PREFIX))

    assert document["definitions"]["Meta"][GVK] == [*one, *two]


def test_a_known_path_stays_and_brings_nothing():
    document = whole()
    document["paths"][PATH] = {"ours": True}
    merge(document, part_of(DOCUMENT, PREFIX))

    assert (document["paths"][PATH], document["definitions"]) == ({"ours": True}, {})


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"paths": []}', b'{"paths": {}, "definitions": [1]}', b"[" * 100_000, b"\xff",
        b'{"paths": {"/a/b": {"parameters": [{}]}}}', b'{"paths": {"/a/b": 1}}',
        b'{"paths": {"/a/b": {"parameters": [{"in": "header"}]}}}',
    ],
)  # fmt: skip
def test_other_documents_are_refused(body):
    with pytest.raises(ValueError):
        other_part(body, "/a/")
