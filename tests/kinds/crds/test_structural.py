"""Structural schemas: pruning, defaults and validation."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.crds.structural import compile_schema
from podwire.kinds.shape import Field, Report, Shape, TypeMismatch


class AnyMeta:
    def decode(self, value, path, report):
        return value

    def field(self, name) -> Field | None:
        return None

    @property
    def element(self) -> Shape | None:
        return None


def spec(**properties):
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def decoded(schema, obj):
    report = Report()
    return compile_schema(schema, AnyMeta()).decode(obj, "", report), report.unknown


ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NAMED = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "obj", "kept", "unknown"),
    [
        pytest.param(
            spec(a={"type": "integer"}),
            {"apiVersion": "x/v1", "kind": "X", "spec": {"a": 1, "b": 2}, "more": 1},
            {"apiVersion": "x/v1", "kind": "X", "spec": {"a": 1}},
            ["more", "spec.b"],
            id="unknown fields are pruned and reported, sorted",
        ),
        pytest.param(
            spec(list={"type": "array", "items": NAMED}),
            {"spec": {"list": [{"name": "a"}, {"name": "b", "x": 1}]}},
            {"spec": {"list": [{"name": "a"}, {"name": "b"}]}},
            ["spec.list[1].x"],
            id="within lists",
        ),
        pytest.param(
            spec(map={"type": "object", "additionalProperties": NAMED}),
            {"spec": {"map": {"k": {"name": "a", "x": 1}, "gone": None}}},
            {"spec": {"map": {"k": {"name": "a"}}}},
            ["spec.map.k.x"],
            id="within maps",
        ),
        pytest.param(ANYTHING, {"spec": {"a": {"b": None}}}, {"spec": {"a": {"b": None}}}, [], id="all is kept"),
        pytest.param(
            {"type": "object", "properties": {"spec": {**NAMED, **ANYTHING, "properties": {"of": NAMED}}}},
            {"spec": {"free": {"x": 1}, "of": {"name": "n", "x": 1}}},
            {"spec": {"free": {"x": 1}, "of": {"name": "n"}}},
            ["spec.of.x"],
            id="kept, but what is described is pruned",
        ),
        pytest.param(
            spec(any={"type": "object", "additionalProperties": True}),
            {"spec": {"any": {"x": {"y": 1}}}},
            {"spec": {"any": {"x": {"y": 1}}}},
            [],
            id="a map of anything",
        ),
        pytest.param(
            spec(a={"type": "string"}, b={"type": "string", "nullable": True}),
            {"spec": {"a": None, "b": None}},
            {"spec": {"b": None}},
            [],
            id="nulls go unless they may stay",
        ),
        pytest.param(
            spec(a={"type": "string"}),
            {"spec": {"a": 3}},
            {"spec": {"a": 3}},
            [],
            id="types are not decoding's business",
        ),
    ],
)
def test_decoding_prunes_unknown_fields(schema, obj, kept, unknown):
    assert decoded(schema, obj) == (kept, unknown)


def test_metadata_is_shaped_by_the_shape_handed_in_at_the_root_and_in_embedded_objects(meta):
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": NAMED}}
    shape = compile_schema(spec(template=embedded), meta)
    report = Report()
    inner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n", "odd": 1}, "spec": {"name": "s"}}
    kept = shape.decode({"metadata": {"name": "x", "odd": 1}, "spec": {"template": inner}}, "", report)
    assert kept["metadata"] == {"name": "x"}
    assert kept["spec"]["template"] == {**inner, "metadata": {"name": "n"}}
    assert report.unknown == ["metadata.odd", "spec.template.metadata.odd"]


def test_metadata_that_cannot_be_read_is_a_type_mismatch(meta):
    class Broken(type(meta)):
        def decode(self, value, path, report):
            raise TypeMismatch("labels: wrong")

    with pytest.raises(TypeMismatch):
        compile_schema(spec(), Broken()).decode({"metadata": {}}, "", Report())


def test_decoding_does_not_change_its_input():
    obj = {"spec": {"a": None, "list": [{"x": 1}]}}
    decoded(spec(a={"type": "string"}, list={"type": "array", "items": NAMED}), obj)
    assert obj == {"spec": {"a": None, "list": [{"x": 1}]}}


def filled(schema, obj):
    compile_schema(schema, AnyMeta()).apply_defaults(obj)
    return obj


@pytest.mark.parametrize(
    ("schema", "obj", "expected"),
    [
        pytest.param(spec(a={"type": "integer", "default": 3}), {"spec": {}}, {"spec": {"a": 3}}, id="absent"),
        pytest.param(
            spec(a={"type": "integer", "default": 3}), {"spec": {"a": 0}}, {"spec": {"a": 0}}, id="zero stays"
        ),
        pytest.param(spec(a={"type": "integer", "default": 3}), {}, {}, id="no object, no default in it"),
        pytest.param(
            {"type": "object", "properties": {"spec": {**spec(a={"default": 1})["properties"]["spec"], "default": {}}}},
            {},
            {"spec": {"a": 1}},
            id="a default object is filled in turn",
        ),
        pytest.param(
            spec(list={"type": "array", "items": {"type": "object", "properties": {"p": {"default": "TCP"}}}}),
            {"spec": {"list": [{}, {"p": "UDP"}]}},
            {"spec": {"list": [{"p": "TCP"}, {"p": "UDP"}]}},
            id="in every element",
        ),
        pytest.param(
            spec(
                map={"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"default": 1}}}}
            ),
            {"spec": {"map": {"k": {}}}},
            {"spec": {"map": {"k": {"x": 1}}}},
            id="in every value",
        ),
        pytest.param(
            spec(list={"type": "array", "items": {"type": "string", "default": "d"}}),
            {"spec": {"list": [None, "x"]}},
            {"spec": {"list": ["d", "x"]}},
            id="for a null that may not be",
        ),
    ],
)
def test_defaults_fill_absent_fields(schema, obj, expected):
    assert filled(schema, obj) == expected


def test_objects_do_not_share_a_default():
    schema = spec(a={"type": "object", "default": {"list": []}})
    first = filled(schema, {"spec": {}})
    first["spec"]["a"]["list"].append(1)
    assert filled(schema, {"spec": {}}) == {"spec": {"a": {"list": []}}}


def test_list_type_maps_have_merge_keys(cron_tab, meta):
    schema = cron_tab["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    status = compile_schema(schema, meta).field("status").shape
    assert status.field("conditions").merge_key == "type"
    assert status.field("conditions").shape.element.field("type") is not None
    assert status.field("nonsense") is None
    assert status.field("replicas").shape.element is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=15,
)
TREE = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "default": 1},
        "b": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}},
        "c": {"type": "object", "additionalProperties": {"type": "string", "nullable": True}},
    },
}


@given(obj=st.dictionaries(st.sampled_from("abcde"), JSON))
def test_decoding_and_defaulting_twice_is_as_good_as_once(obj):
    shape = compile_schema(TREE, AnyMeta())
    once = shape.decode(obj, "", Report())
    shape.apply_defaults(once)
    report = Report()
    twice = shape.decode(once, "", report)
    shape.apply_defaults(twice)
    assert (twice, report.unknown) == (once, [])
    assert isinstance(shape.validate(once), list)


def test_a_large_object_is_walked_quickly():
    item = {"type": "object", "properties": {letter: {"type": "string"} for letter in "abcdefgh"}}
    shape = compile_schema(spec(list={"type": "array", "items": item}), AnyMeta())
    obj = {"spec": {"list": [dict.fromkeys("abcdefgh", "text") for _ in range(500)]}}
    begun = time.process_time()
    shape.validate(shape.decode(obj, "", Report()))
    assert time.process_time() - begun < 2, "some 10 ms of work; minutes if it were not bounded"
