"""The rules of a schema, run over objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.crds.rules import compile_rules, run_rules
from podwire.protocols.k8sapi.status import invalid, required

INT = {"type": "integer"}
TEXT = {"type": "string"}


def ruled(schema, *rules):
    return {**schema, "x-kubernetes-validations": [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]}


def found(schema, new, old=None, before=(), **options):
    return [str(error) for error in run_rules(compile_rules(schema), new, old, before, **options)]


def objects(**properties):
    return {"type": "object", "properties": properties}


RANGE = ruled(objects(least=INT, most=INT), "self.least <= self.most")


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        pytest.param({}, "spec: Invalid value: failed rule: self.least <= self.most", id="the rule itself"),
        pytest.param({"message": " least is above most "}, "spec: Invalid value: least is above most", id="a message"),
        pytest.param({"messageExpression": "'%d is above %d'.format([self.least, self.most])"},
                     "spec: Invalid value: 3 is above 2", id="a message of its own"),
        pytest.param({"message": "no", "messageExpression": "string(self.most / 0)"}, "spec: Invalid value: no",
                     id="a message that fails"),
        pytest.param({"message": "no", "messageExpression": "' \\n '"}, "spec: Invalid value: no", id="blank"),
        pytest.param({"message": "no", "messageExpression": "'a\\nb'"}, "spec: Invalid value: no", id="two lines"),
        pytest.param({"message": "no", "fieldPath": ".least"}, "spec.least: Invalid value: no", id="another field"),
        pytest.param({"message": "no", "reason": "FieldValueForbidden"}, "spec: Forbidden: no", id="forbidden"),
        pytest.param({"message": "no", "reason": "FieldValueRequired"}, "spec: Required value: no", id="required"),
        pytest.param({"message": "no", "reason": "FieldValueDuplicate"}, "spec: Duplicate value", id="duplicate"),
        pytest.param({"message": "no", "reason": "FieldValueInvalid"}, "spec: Invalid value: no", id="invalid"),
    ],
)  # fmt: skip
def test_a_violated_rule_is_reported(rule, error):
    schema = objects(spec=ruled(objects(least=INT, most=INT), {"rule": "self.least <= self.most", **rule}))
    assert found(schema, {"spec": {"least": 3, "most": 2}}) == [error]
    assert found(schema, {"spec": {"least": 2, "most": 2}}) == []


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        pytest.param(ruled(INT, "self > 5"), 3, "v: Invalid value: 3: failed rule: self > 5", id="number"),
        pytest.param(ruled(TEXT, "self == 'a'"), "b", """v: Invalid value: "b": failed rule: self == 'a'""", id="text"),
        pytest.param(RANGE, {},
                     'v: Invalid value: "object": no such key: least evaluating rule: self.least <= self.most',
                     id="an absent field"),
        pytest.param(ruled({"type": "array", "items": INT}, "self[3] == 1"), [],
                     'v: Invalid value: "array": index out of bounds: 3 evaluating rule: self[3] == 1', id="no such"),
        pytest.param(ruled({"x-kubernetes-int-or-string": True}, "self > 5"), "x",
                     "v: Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, "
                     "function or macro signature for rule: self > 5", id="types"),
        pytest.param({"type": "array", "items": ruled(INT, "self > 5")}, [9, 3],
                     "v[1]: Invalid value: 3: failed rule: self > 5", id="an element"),
        pytest.param({"type": "object", "additionalProperties": ruled(INT, "self > 5")}, {"a": 9, "b.c": 3},
                     "v[b.c]: Invalid value: 3: failed rule: self > 5", id="a map's value"),
        pytest.param(ruled({"type": "array", "items": INT}, "self.all(a, self.all(b, self.all(c, true)))"), [1] * 100,
                     "v: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further "
                     "validation rules will be run due to call cost exceeds limit for rule: "
                     "self.all(a, self.all(b, self.all(c, true)))", id="a long way"),
    ],
)  # fmt: skip
def test_an_error_has_its_place_its_value_and_its_reason(schema, value, error):
    assert found(objects(v=schema), {"v": value}) == [error]


def test_a_rule_at_the_root_has_no_field():
    schema = ruled(objects(spec=INT), {"rule": "self.metadata.name == 'x'", "message": "must be x"})
    assert found(schema, {"metadata": {"name": "y"}, "spec": 1}) == ["<nil>: Invalid value: must be x"]


@pytest.mark.parametrize(
    ("schema", "rule", "value"),
    [
        pytest.param({"type": "number"}, "self / 2.0 == 1.5", 3, id="a whole number where any may be"),
        pytest.param(INT, "self / 2 == 1", 3.0, id="a number with a dot where none is needed"),
        pytest.param({"type": "string", "format": "byte"}, "self == b'abc'", "YWJj", id="bytes"),
        pytest.param({"type": "string", "format": "date"}, "self.getFullYear() == 2024", "2024-02-29", id="date"),
        pytest.param({"type": "string", "format": "date-time"}, "self.getHours() == 11", "2024-02-29T12:00:00+01:00",
                     id="time"),
        pytest.param({"type": "string", "format": "duration"}, "self == duration('5400s')", "1h30m", id="duration"),
        pytest.param({"type": "string", "format": "duration"}, "self < duration('0s')", "-1.5s", id="time backwards"),
        pytest.param(objects(**{"a-b": INT, "for": {**INT, "nullable": True}}),
                     "self.a__dash__b == 1 && !has(self.__for__)", {"a-b": 1, "for": None},
                     id="escaped names, and null is absent"),
        pytest.param({"type": "object", "additionalProperties": {"type": "number"}}, "self.a > 0.5", {"a": 1}, id="a"),
        pytest.param({"type": "array", "items": {"type": "number"}}, "self.sum() == 3.0", [1, 2], id="list"),
        pytest.param({**objects(), "x-kubernetes-embedded-resource": True}, "size(self.metadata.name) > 0",
                     {"metadata": {"name": "n", "labels": {}}}, id="an object within an object"),
    ],
)  # fmt: skip
def test_values_have_the_cel_types_of_their_schema(schema, rule, value):
    assert found(objects(v=ruled(schema, rule)), {"v": value}) == []


@pytest.mark.parametrize(
    ("format_", "value"), [("byte", "!"), ("date", "yesterday"), ("date-time", "noon"), ("duration", "long")]
)
def test_a_text_that_violates_its_format_is_reported(format_, value):
    [error] = found(objects(v=ruled({"type": "string", "format": format_}, "true")), {"v": value})
    assert error.startswith('v: Invalid value: "string": Invalid ')


# --- before and after -------------------------------------------------------------------------------------------------

FIXED = {"rule": "self == oldSelf", "message": "is fixed"}


def test_a_transition_rule_runs_only_on_updates():
    schema = objects(v=ruled(INT, FIXED))
    assert found(schema, {"v": 1}) == []
    assert found(schema, {"v": 1}, {}) == []
    assert found(schema, {"v": 1}, {"v": 1}) == []
    assert found(schema, {"v": 2}, {"v": 1}) == ["v: Invalid value: 2: is fixed"]


def test_a_rule_with_optional_old_self_always_runs():
    rule = {"rule": "oldSelf.hasValue() ? self == oldSelf.value() : self == 1", "optionalOldSelf": True}
    schema = objects(v=ruled(INT, {**rule, "message": "one, once"}))
    assert found(schema, {"v": 1}) == []
    assert found(schema, {"v": 2}) == ["v: Invalid value: 2: one, once"]
    assert found(schema, {"v": 2}, {"v": 2}) == []


def listed(kind, items, **more):
    return {"type": "array", "items": items, "x-kubernetes-list-type": kind, **more}


BY_NAME = {"x-kubernetes-list-map-keys": ["name"]}
KEYED = listed("map", ruled(objects(name=TEXT, size=INT), {"rule": "self.size >= oldSelf.size", "message": "shrinks"}),
               **BY_NAME)  # fmt: skip


def test_elements_are_found_again_by_their_names():
    old = {"v": [{"name": "a", "size": 2}, {"name": "b", "size": 2}]}
    new = {"v": [{"name": "b", "size": 3}, {"name": "c", "size": 0}, {"name": "a", "size": 1}]}
    assert found(objects(v=KEYED), new, old) == ["v[2]: Invalid value: shrinks"]


def test_values_of_a_map_are_found_again_by_their_keys():
    schema = objects(v={"type": "object", "additionalProperties": ruled(INT, FIXED)})
    assert found(schema, {"v": {"a": 1, "b": 2}}, {"v": {"b": 3}}) == ["v[b]: Invalid value: 2: is fixed"]


@pytest.mark.parametrize(
    ("schema", "new", "old", "same"),
    [
        pytest.param(listed("set", TEXT), ["a", "b"], ["b", "a"], True, id="a set in another order"),
        pytest.param(listed("set", TEXT), ["a", "b"], ["b", "c"], False, id="another set"),
        pytest.param(listed("atomic", TEXT), ["a", "b"], ["b", "a"], False, id="a list in another order"),
        pytest.param(listed("map", objects(name=TEXT, s=listed("set", TEXT)), **BY_NAME),
                     [{"name": "a", "s": ["x", "y"]}, {"name": "b"}], [{"name": "b"}, {"name": "a", "s": ["y", "x"]}],
                     True, id="sets within a keyed list"),
        pytest.param({"type": "object", "additionalProperties": listed("set", TEXT)}, {"k": ["a", "b"]},
                     {"k": ["b", "a"]}, True, id="sets within a map"),
        pytest.param(listed("atomic", objects(s=listed("set", TEXT))), [{"s": ["a", "b"]}], [{"s": ["b", "a"]}], True,
                     id="sets within a list"),
    ],
)  # fmt: skip
def test_order_matters_in_atomic_lists(schema, new, old, same):
    errors = found(objects(v=ruled(schema, FIXED)), {"v": new}, {"v": old})
    assert (not errors) is same


@given(st.lists(st.integers(0, 9), unique=True), st.randoms(use_true_random=False))
def test_a_shuffled_set_is_the_same_set(values, random):
    shuffled = random.sample(values, len(values))
    assert found(objects(v=ruled(listed("set", INT), FIXED)), {"v": shuffled}, {"v": values}) == []


# --- limits -----------------------------------------------------------------------------------------------------------


NOT_RUN = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
SPENT = (
    'a: Invalid value: "integer": validation failed due to running out of cost budget, '
    "no further validation rules will be run"
)


@pytest.mark.parametrize(
    "before",
    [required("spec.a"), invalid("spec.a", "string", 'spec.a in body must be of type integer: "string"')],
    ids=["something is missing", "a type is wrong"],
)
def test_rules_do_not_run_on_an_object_that_violates_its_schema(before):
    assert found(objects(v=ruled(INT, "false")), {"v": 1}, before=[before]) == [NOT_RUN]


def test_rules_are_run_over_an_object_that_has_only_a_wrong_value():
    before = [invalid("v", 1, "v in body should be greater than or equal to 5")]
    assert found(objects(v=ruled(INT, "self > 5")), {"v": 1}, before=before) == [
        "v: Invalid value: 1: failed rule: self > 5"
    ]


def test_an_object_is_rejected_when_its_rules_take_too_long():
    schema = objects(a=ruled(INT, "true", "true"), b=ruled(INT, "true"))
    assert found(schema, {"a": 1, "b": 1}, seconds=-1.0) == [SPENT]


def test_a_schema_without_rules_costs_nothing():
    assert compile_rules(objects(v=INT)) is None


def test_a_text_cut_short_by_a_nul_does_not_pass():
    [error] = found(objects(v=ruled(TEXT, "self == 'ok'")), {"v": "ok\0evil"})
    assert "NUL" in error
