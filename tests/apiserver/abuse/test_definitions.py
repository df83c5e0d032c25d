"""Definitions of custom resources that would hurt the server, and objects that would through them."""

import time
from typing import Any

import pytest

from tests.eventually import eventually

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
SECONDS = 6.0


def definition(schema: Any = None, group: str = "example.com", plural: str = "things", **spec: Any) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema or {"type": "object"}},
    }
    names = {"plural": plural, "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    whole = {"group": group, "scope": "Namespaced", "names": names, "versions": [version], **spec}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": whole}


def thing(**content: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, **content}


def text(**words: Any) -> dict[str, Any]:
    """A schema of an object with one text."""
    return {"type": "object", "properties": {"text": {"type": "string", **words}}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("wrong", "code", "part"),
    [
        pytest.param({"metadata": {"name": "x"}}, 422, "spec.group: Required value", id="no spec"),
        pytest.param({"metadata": {"name": "x"}, "spec": []}, 400, "cannot unmarshal array", id="a list for a spec"),
        pytest.param(definition(versions=[]), 422, "spec.versions", id="no versions"),
        pytest.param(definition(versions=[None]), 422, "spec.versions[0]", id="a null for a version"),
        pytest.param(definition(names={}), 422, "spec.names.plural", id="no names"),
        pytest.param(definition(scope="Galaxy"), 422, "spec.scope", id="no such scope"),
        pytest.param(definition(group="example"), 422, "at least one dot", id="a group without a dot"),
        pytest.param(definition(group="../x"), 422, "spec.group", id="dots for a group"),
        pytest.param(definition(plural="../things"), 422, "metadata.name", id="dots for a name"),
        pytest.param(definition(group="x" * 300 + ".com"), 422, "spec.group", id="a long group"),
        pytest.param(definition({"type": "string"}), 422, "must be object at the root", id="a text at the root"),
        pytest.param(definition({"$ref": "#/x"}), 422, "$ref is not supported", id="a reference"),
        pytest.param(definition({"type": 7}), 400, "", id="a number for a type"),
        pytest.param(definition({"type": "object", "properties": {"a": 1}}), 400, "", id="a number for a schema"),
        pytest.param(definition(text(pattern="(")), 422, "valid regular expression", id="no pattern"),
        pytest.param(definition(text(pattern=r"(a)\1")), 422, "invalid escape sequence", id="a back-reference"),
        pytest.param(definition(text(pattern="(?=a)")), 422, "invalid perl operator", id="look-around"),
        pytest.param(
            definition(text(pattern="((a{1000}){1000}){1000}")),
            422,
            "invalid repetition size",
            id="a billion repetitions",
        ),
        pytest.param(definition(text(pattern="(" * 900 + ")" * 900)), None, "", id="nine hundred groups"),
        pytest.param(definition(text(pattern="a" * 5000)), 422, "longer than", id="a long pattern"),
        pytest.param(definition(text(default=7)), 422, "default", id="a default that does not fit"),
        pytest.param(definition(text(uniqueItems=True)), 422, "quadratic", id="unique items"),
        pytest.param(definition(text(multipleOf=0)), None, "", id="a multiple of nothing"),
        pytest.param(definition(deep(70)), None, "", id="seventy levels"),
        pytest.param(definition(deep(150)), 400, "levels deep", id="three hundred levels"),
        pytest.param(definition(conversion={"strategy": "Webhook"}), 422, "spec.conversion", id="a webhook"),
    ],
)
def test_a_definition_that_cannot_be_served_is_refused(house, wrong, code, part):
    reply = house.ask("POST", DEFINITIONS, wrong)
    if code is None:
        assert reply.status in (201, 400, 422)
        return
    assert (reply.status, part in reply.message) == (code, True), reply.raw[:500]


@pytest.mark.parametrize("approval", ["https://example.com/pull/1", "unapproved, just trying"])
def test_built_in_kinds_cannot_be_defined(house, approval):
    """Deleting such a definition would delete every network policy there is."""
    wrong = definition(group="networking.k8s.io", plural="networkpolicies")
    wrong["metadata"]["annotations"] = {"api-approved.kubernetes.io": approval}
    reply = house.refused("POST", DEFINITIONS, wrong)
    assert (reply.status, "is built in" in reply.message) == (422, True)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "^(a|a)*$",
        "(.*)*(.*)*(.*)*!$",
        "^(a?){100}a{100}$",
        "(x+x+)+y",
        "^([a-z]+[0-9]*)+$",
        "(a|b)*a(a|b){300}$",
    ],
)
def test_no_pattern_keeps_the_server_busy(house, pattern):
    house.made(DEFINITIONS, definition(text(pattern=pattern)))
    house.settle()
    began = time.process_time()
    for value in ("a" * 100_000 + "!", "x" * 100_000, "ab" * 50_000 + "?"):
        house.ask("POST", THINGS, thing(text=value))
    assert time.process_time() - began < SECONDS


def test_dear_patterns_over_much_text_are_refused_at_the_field_where_patience_ended(house):
    words = {"type": "array", "items": {"type": "string", "pattern": "(a|b)*a(a|b){300}$"}}
    house.made(DEFINITIONS, definition({"type": "object", "properties": {"words": words}}))
    house.settle()
    noise = [f"{number:b}".replace("0", "a").replace("1", "b") * 20 for number in range(3000)]
    began = time.process_time()
    reply = house.refused("POST", THINGS, thing(words=noise))
    assert (reply.status, reply.fields[-1][:6]) == (422, "words[")
    assert time.process_time() - began < SECONDS


def test_defaults_do_not_multiply_an_object(house):
    """A default of a hundred kilobytes in each of forty thousand elements would be four gigabytes."""
    element = {"type": "object", "properties": {"text": {"type": "string", "default": "x" * 100_000}}}
    house.made(DEFINITIONS, definition({"type": "object", "properties": {"all": {"type": "array", "items": element}}}))
    eventually(lambda: house.ask("GET", THINGS).status == 200)
    reply = house.refused("POST", THINGS, thing(all=[{}] * 40_000))
    assert (reply.status, reply.body["reason"]) == (413, "RequestEntityTooLarge")


def test_a_long_list_of_allowed_values_is_not_repeated_for_every_wrong_one(house):
    word = {"type": "string", "enum": [f"value-{number}" for number in range(40_000)]}
    house.made(DEFINITIONS, definition({"type": "object", "properties": {"all": {"type": "array", "items": word}}}))
    eventually(lambda: house.ask("GET", THINGS).status == 200)
    reply = house.refused("POST", THINGS, thing(all=["wrong"] * 10_000))
    assert (reply.status, len(reply.raw) < 500_000) == (422, True)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param({"type": "number", "multipleOf": 5e-324}, 1e300, id="a multiple of almost nothing"),
        pytest.param({"type": "number", "multipleOf": 0.1}, 2**63 - 1, id="a large multiple"),
        pytest.param({"type": "integer", "minimum": 1e300}, 5, id="above any number"),
        pytest.param({"type": "string", "format": "date-time"}, "0001-01-01T00:00:00+14:00", id="before all time"),
        pytest.param({"type": "string", "format": "date-time"}, "9999-12-31T23:59:59-14:00", id="after all time"),
        pytest.param({"type": "string", "format": "cidr"}, "10.0.0.0/" + "9" * 5000, id="a long prefix"),
        pytest.param({"type": "string", "format": "duration"}, "1" * 4000 + "x", id="a long duration"),
        pytest.param({"type": "string", "format": "byte"}, "\u00e9" * 1000, id="no base64"),
        pytest.param({"type": "string", "maxLength": 3}, "\U0001f600" * 4, id="four large characters"),
        pytest.param({"x-kubernetes-int-or-string": True}, 1.5, id="neither int nor string"),
        pytest.param({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, ["a"] * 20_000,
                     id="the same many times"),
    ],
)  # fmt: skip
def test_boundary_values_are_validated_without_a_failure(house, schema, value):
    house.made(DEFINITIONS, definition({"type": "object", "properties": {"value": schema}}))
    house.settle()
    assert house.ask("POST", THINGS, thing(value=value)).status in (201, 422)


@pytest.mark.parametrize(
    ("wrong", "code", "part"),
    [
        pytest.param({}, 400, "Kind", id="no kind"),
        pytest.param(thing(kind="Other"), 400, "expected kind", id="another kind"),
        pytest.param(thing(apiVersion="example.com/v2"), 400, "API version", id="another version"),
        pytest.param(thing(metadata={}), 422, "metadata.name", id="no name"),
        pytest.param(thing(metadata=[]), 400, "", id="a list for metadata"),
        pytest.param(thing(metadata={"name": "t", "labels": {"a": 1}}), 400, "labels", id="a number for a label"),
        pytest.param(thing(text=7), 422, 'must be of type string: "integer"', id="a number for a text"),
        pytest.param(thing(text="b"), 422, "should match", id="a text that does not match"),
    ],
)
def test_an_invalid_custom_object_is_refused_with_the_reason(house, wrong, code, part):
    house.made(DEFINITIONS, definition(text(pattern="^a*$")))
    house.settle()
    reply = house.refused("POST", THINGS, wrong)
    assert (reply.status, part in reply.message) == (code, True), reply.raw[:500]


def test_protobuf_and_strategic_patches_are_not_for_custom_resources(house):
    house.made(DEFINITIONS, definition(text()))
    house.settle()
    house.made(THINGS, thing())
    assert house.refused("POST", THINGS, b"k8s\x00", media="application/vnd.kubernetes.protobuf").status == 415
    patch = "application/strategic-merge-patch+json"
    assert house.refused("PATCH", f"{THINGS}/t", b"{}", media=patch).status == 415
