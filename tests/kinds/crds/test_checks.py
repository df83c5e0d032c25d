"""Value validation, sentence by sentence."""

import pytest

from podwire.kinds.crds.checks import compiled


def errors_of(schema, value, path="spec.x"):
    errors = []
    compiled(schema)(value, path, errors)
    return [str(error) for error in errors]


TEXT = {"type": "string"}
NUMBER = {"type": "number"}
WHOLE = {"type": "integer"}
LIST = {"type": "array"}
OBJECT = {"type": "object"}
ONE_OF = '<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf).'


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        pytest.param(
            WHOLE,
            "a",
            ['spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"'],
            id="wrong type",
        ),
        pytest.param(
            TEXT,
            None,
            ['spec.x: Invalid value: "null": spec.x in body must be of type string: "null"'],
            id="null where there must be a value",
        ),
        pytest.param(
            WHOLE,
            True,
            ['spec.x: Invalid value: "boolean": spec.x in body must be of type integer: "boolean"'],
            id="true is not a number",
        ),
        pytest.param(
            WHOLE,
            1.5,
            ['spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"'],
            id="a fraction is not an integer",
        ),
        pytest.param(
            {"x-kubernetes-int-or-string": True},
            [],
            ['spec.x: Invalid value: "array": spec.x in body must be of type integer,string: "array"'],
            id="neither integer nor string",
        ),
        pytest.param(
            {**WHOLE, "minimum": 1},
            0,
            ["spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1"],
            id="minimum",
        ),
        pytest.param(
            {**NUMBER, "minimum": 0.5, "exclusiveMinimum": True},
            0.5,
            ["spec.x: Invalid value: 0.5: spec.x in body should be greater than 0.5"],
            id="exclusive minimum",
        ),
        pytest.param(
            {**WHOLE, "maximum": 10.0},
            11,
            ["spec.x: Invalid value: 11: spec.x in body should be less than or equal to 10"],
            id="maximum",
        ),
        pytest.param(
            {**WHOLE, "maximum": 10, "exclusiveMaximum": True},
            10,
            ["spec.x: Invalid value: 10: spec.x in body should be less than 10"],
            id="exclusive maximum",
        ),
        pytest.param(
            {**WHOLE, "multipleOf": 5},
            7,
            ["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"],
            id="multiple",
        ),
        pytest.param(
            {**WHOLE, "format": "int32"},
            2**31,
            ["spec.x: Invalid value: 2147483648: Checked value must be of type integer with format int32 in spec.x"],
            id="int32",
        ),
        pytest.param(
            {**TEXT, "enum": ["b", "a"]},
            "z",
            ['spec.x: Unsupported value: "z": supported values: "b", "a"'],
            id="enum",
        ),
        pytest.param(
            {"enum": [1, "a"]},
            True,
            ['spec.x: Unsupported value: true: supported values: "1", "a"'],
            id="true is not 1",
        ),
        pytest.param(
            {**TEXT, "minLength": 3},
            "ab",
            ['spec.x: Invalid value: "ab": spec.x in body should be at least 3 chars long'],
            id="too short",
        ),
        pytest.param(
            {**TEXT, "maxLength": 2}, "abc", ["spec.x: Too long: may not be more than 2 bytes"], id="too long"
        ),
        pytest.param(
            {**TEXT, "pattern": "^a+$"},
            "ab",
            ["spec.x: Invalid value: \"ab\": spec.x in body should match '^a+$'"],
            id="pattern",
        ),
        pytest.param(
            {**TEXT, "format": "date-time"},
            "now",
            ['spec.x: Invalid value: "now": spec.x in body must be of type date-time: "now"'],
            id="format",
        ),
        pytest.param(
            {**LIST, "minItems": 1},
            [],
            ["spec.x: Invalid value: []: spec.x in body should have at least 1 items"],
            id="too few items",
        ),
        pytest.param(
            {**LIST, "maxItems": 1}, [1, 2], ["spec.x: Too many: 2: must have at most 1 items"], id="too many items"
        ),
        pytest.param(
            {**LIST, "uniqueItems": True},
            [1, 1.0],
            ["spec.x: Invalid value: [1,1.0]: spec.x in body shouldn't contain duplicates"],
            id="duplicates",
        ),
        pytest.param(
            {**LIST, "items": TEXT},
            ["a", 1],
            ['spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: "integer"'],
            id="an element",
        ),
        pytest.param(
            {**LIST, "items": TEXT, "x-kubernetes-list-type": "set"},
            ["a", "b", "a"],
            ['spec.x[2]: Duplicate value: "a"'],
            id="a set",
        ),
        pytest.param(
            {**LIST, "items": OBJECT, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            [{"name": "a", "v": 1}, {"name": "a", "v": 2}, {"name": "b"}],
            ['spec.x[1]: Duplicate value: {"name":"a"}'],
            id="a list that is a map",
        ),
        pytest.param({**OBJECT, "required": ["a"]}, {}, ["spec.x.a: Required value"], id="required"),
        pytest.param(
            {**OBJECT, "minProperties": 1},
            {},
            ["spec.x: Invalid value: {}: spec.x in body should have at least 1 properties"],
            id="too few properties",
        ),
        pytest.param(
            {**OBJECT, "maxProperties": 1},
            {"a": 1, "b": 2},
            ["spec.x: Too many: 2: must have at most 1 items"],
            id="too many properties",
        ),
        pytest.param(
            {**OBJECT, "additionalProperties": WHOLE},
            {"a": "b"},
            ['spec.x.a: Invalid value: "string": spec.x.a in body must be of type integer: "string"'],
            id="a map's value",
        ),
        pytest.param(
            {**OBJECT, "x-kubernetes-embedded-resource": True},
            {"kind": 3},
            [
                "spec.x.apiVersion: Required value: must not be empty",
                'spec.x.kind: Invalid value: "integer": must be of type string: "integer"',
            ],
            id="an embedded object",
        ),
        pytest.param(
            {**OBJECT, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": 1, "b": 1},
            [f"{ONE_OF} Found 2 valid alternatives"],
            id="two of oneOf",
        ),
        pytest.param(
            {**OBJECT, "oneOf": [{"required": ["a"]}, {"required": ["b", "c"]}]},
            {},
            [
                f"{ONE_OF} Found none valid",
                "spec.x.a: Required value",
            ],
            id="none of oneOf",
        ),
        pytest.param(
            {**WHOLE, "anyOf": [{"minimum": 10}, {"maximum": 0}]},
            5,
            [
                '<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
                "spec.x: Invalid value: 5: spec.x in body should be greater than or equal to 10",
            ],
            id="none of anyOf",
        ),
        pytest.param(
            {**WHOLE, "allOf": [{"minimum": 10}, {"maximum": 10}]},
            5,
            [
                "spec.x: Invalid value: 5: spec.x in body should be greater than or equal to 10",
                '<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)',
            ],
            id="not all of allOf",
        ),
        pytest.param(
            {**TEXT, "not": {"enum": ["x"]}},
            "x",
            ['<nil>: Invalid value: "": "spec.x" must not validate the schema (not)'],
            id="not",
        ),
    ],
)
def test_invalid_values_are_reported_with_upstreams_messages(schema, value, expected):
    assert errors_of(schema, value) == expected


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param({**TEXT, "nullable": True}, None, id="null where it may be"),
        pytest.param(WHOLE, 1.0, id="1.0 is an integer"),
        pytest.param(NUMBER, 1, id="1 is a number"),
        pytest.param({"x-kubernetes-int-or-string": True}, "50%", id="int or string"),
        pytest.param({"enum": [{"a": [1]}]}, {"a": [1.0]}, id="enum of objects"),
        pytest.param({**TEXT, "format": "unheard-of"}, "x", id="a format that nobody knows"),
        pytest.param({**NUMBER, "multipleOf": 0.1}, 0.3, id="a multiple of a fraction"),
        pytest.param({**WHOLE, "oneOf": [{"minimum": 10}, {"maximum": 0}]}, 11, id="one of oneOf"),
        pytest.param({**WHOLE, "anyOf": [{"minimum": 10}, {"minimum": 5}]}, 11, id="two of anyOf"),
        pytest.param({"properties": {"a": WHOLE}}, "not an object", id="rules for objects say nothing of strings"),
    ],
)
def test_valid_values_pass(schema, value):
    assert errors_of(schema, value) == []


def test_paths_begin_without_a_dot():
    schema = {**OBJECT, "properties": {"spec": {**OBJECT, "properties": {"a": WHOLE}}}}
    assert errors_of(schema, {"spec": {"a": "b"}}, "")[0].startswith("spec.a: Invalid value")


def test_a_long_value_is_matched_like_any_other():
    assert not errors_of({**TEXT, "pattern": "a$"}, "b" * 1_000_000 + "a")
