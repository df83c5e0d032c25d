"""Rules of a definition that cannot be run are rejected with upstream's errors."""

import pytest

from podwire.kinds.crds.rule_checks import form_errors, rule_errors
from podwire.protocols.cel import environment

AT = "schema"


def ruled(schema, *rules):
    return {**schema, "x-kubernetes-validations": [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]}


def texts(errors):
    return [str(error) for error in errors]


INT = {"type": "integer"}
TEXT = {"type": "string", "maxLength": 10}
SPEC = {"type": "object", "properties": {"least": INT, "most": INT, "names": {"type": "array", "items": TEXT}}}
KEYED = {
    "type": "array",
    "maxItems": 10,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": ruled({"type": "object", "required": ["name"], "properties": {"name": TEXT, "size": INT}},
                   "self.size == oldSelf.size"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        pytest.param({}, "rule: Required value: rule is not specified", id="nothing"),
        pytest.param({"rule": "  "}, "rule: Required value: rule is not specified", id="blanks"),
        pytest.param({"rule": "true", "message": " "}, 'message: Invalid value: " ": must be non-empty if specified',
                     id="no message"),
        pytest.param({"rule": "true", "message": "a\nb"},
                     'message: Invalid value: "a\\nb": must not contain line breaks', id="two lines"),
        pytest.param({"rule": "true ||\nfalse"},
                     "message: Required value: message must be specified if rule contains line breaks", id="long rule"),
        pytest.param({"rule": "true", "messageExpression": " "},
                     "messageExpression: Required value: messageExpression must be non-empty if specified", id="blank"),
        pytest.param({"rule": "true", "reason": "Because"},
                     'reason: Unsupported value: "Because": supported values: "FieldValueDuplicate", '
                     '"FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"', id="reason"),
        pytest.param({"rule": "true", "fieldPath": ".nope"}, 'fieldPath: Invalid value: ".nope": must be a valid path',
                     id="path"),
        pytest.param({"rule": "true", "fieldPath": "least"}, 'fieldPath: Invalid value: "least": must be a valid path',
                     id="path without a dot"),
        pytest.param({"rule": "true", "fieldPath": ".names[0]"}, "must be a valid path", id="path into a list"),
    ],
)  # fmt: skip
def test_a_rule_has_a_form(rule, error):
    [found] = texts(form_errors(ruled(SPEC, rule), AT))
    assert error in found
    assert found.startswith(f"{AT}.x-kubernetes-validations[0].")


@pytest.mark.parametrize("rules", [{"rule": "true"}, ["true"], [{"rule": 1}], [{"rule": "true", "message": 5}]])
def test_malformed_rules_are_rejected(rules):
    assert form_errors({**SPEC, "x-kubernetes-validations": rules}, AT)


RULE = f"{AT}.x-kubernetes-validations[0]"


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        pytest.param(
            "self.lest < 1",
            f'{RULE}.rule: Invalid value: {{"rule":"self.lest < 1"}}: compilation failed: '
            "ERROR: <input>:1:5: undefined field 'lest'\n | self.lest < 1\n | ....^",
            id="a field that is not there",
        ),
        pytest.param("self.least < 'x'", "found no matching overload for '_<_' applied to '(int, string)'", id="types"),
        pytest.param("self.least", "cel expression must evaluate to a bool", id="no truth"),
        pytest.param("self.least < other", "undeclared reference to 'other' (in container '')", id="a name"),
        pytest.param("self.least <", "Syntax error", id="half a rule"),
        pytest.param({"rule": "true", "messageExpression": "self.most"},
                     f"{RULE}.messageExpression: Invalid value: "
                     '{"rule":"true","messageExpression":"self.most"}: messageExpression must evaluate to a string',
                     id="a message that is a number"),
        pytest.param({"rule": "true", "messageExpression": "self.x"}, "messageExpression compilation failed: ERROR",
                     id="a message that is nothing"),
        pytest.param({"rule": "true", "optionalOldSelf": True},
                     f"{RULE}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
                     id="an old self that nobody asks"),
        pytest.param({"rule": "oldSelf.least > 1", "optionalOldSelf": True}, "optional_type",
                     id="an optional that is taken for a value"),
        pytest.param("self.metadata.name == ''", "undefined field 'metadata'", id="metadata below the root"),
    ],
)  # fmt: skip
def test_a_rule_that_does_not_compile_is_rejected(rule, error):
    nested = {"type": "object", "properties": {"spec": ruled(SPEC, rule)}}
    [found] = texts(rule_errors(nested, "root"))
    assert error.replace(AT, "root.properties[spec]", 1) in found


@pytest.mark.parametrize(
    "rule",
    [
        "self.least <= self.most",
        "!has(self.least) || self.least > 0",
        "self == oldSelf",
        {"rule": "!oldSelf.hasValue() || oldSelf.value().least <= self.least", "optionalOldSelf": True},
        {"rule": "true", "messageExpression": "'at least ' + string(self.least)", "fieldPath": ".least"},
        "self.?names.orValue([]).size() < 4",
    ],
)
def test_a_valid_rule_is_accepted(rule):
    assert rule_errors(ruled({**SPEC, "properties": {**SPEC["properties"]}}, rule), AT) == []


def test_the_root_has_a_name_and_a_kind():
    assert rule_errors(ruled(SPEC, "self.metadata.name.startsWith(self.kind)", "self.apiVersion != ''"), AT) == []
    [found] = texts(rule_errors(ruled(SPEC, "self.metadata.labels.size() < 5"), AT))
    assert "undefined field 'labels'" in found


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        pytest.param({"type": "string", "format": "date-time"}, "self < timestamp('2030-01-01T00:00:00Z')", id="time"),
        pytest.param({"type": "string", "format": "duration"}, "self < duration('1h')", id="duration"),
        pytest.param({"type": "string", "format": "byte", "maxLength": 9}, "self.size() < 5", id="bytes"),
        pytest.param({"x-kubernetes-int-or-string": True}, "type(self) == int ? self < 5 : self == '5%'", id="either"),
        pytest.param({"type": "object", "maxProperties": 9, "additionalProperties": INT},
                     "self.all(k, self[k] > 1) && 'a' in self", id="map"),
        pytest.param({"type": "object", "properties": {"a-b": INT, "for": INT, "x__y": INT, "p.q/r": INT}},
                     "self.a__dash__b + self.__for__ + self.x__underscores__y + self.p__dot__q__slash__r > 0",
                     id="names that have to be escaped"),
        pytest.param({"type": "number"}, "self > 1.5", id="number"),
        pytest.param({"type": "boolean"}, "self", id="truth"),
    ],
)  # fmt: skip
def test_a_rule_knows_the_type_of_its_schema(schema, rule):
    assert rule_errors(ruled(schema, rule), AT) == []


def test_a_field_of_no_type_cannot_be_spoken_of():
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    [found] = texts(rule_errors(ruled({"type": "object", "properties": {"any": anything}}, "has(self.any)"), AT))
    assert "undefined field 'any'" in found
    [found] = texts(rule_errors({"type": "object", "properties": {"any": ruled(anything, "true")}}, AT))
    assert found.startswith(f"{AT}.properties[any].x-kubernetes-validations: Forbidden: rules cannot be used")


def test_old_self_is_available_only_where_elements_have_keys():
    assert rule_errors({"type": "object", "properties": {"list": KEYED}}, AT) == []
    plain = {each: value for each, value in KEYED.items() if not each.startswith("x-kubernetes-list")}
    [found] = texts(rule_errors({"type": "object", "properties": {"list": plain}}, AT))
    assert found == (
        f'{AT}.properties[list].items.x-kubernetes-validations[0].rule: Invalid value: "self.size == oldSelf.size": '
        f"oldSelf cannot be used on the uncorrelatable portion of the schema within {AT}.properties[list]"
    )


def test_a_rule_over_unbounded_values_exceeds_the_budget():
    names = {"type": "array", "items": {"type": "string"}}
    [found] = texts(rule_errors(ruled(names, "self.all(x, self.all(y, x == y))"), AT))[:1]
    assert found == (
        f"{AT}.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than "
        "100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
        "strings are declared)"
    )
    bounded = {**names, "maxItems": 100, "items": TEXT}
    assert rule_errors(ruled(bounded, "self.all(x, self.all(y, x == y))"), AT) == []


def test_a_rule_costs_as_often_as_its_value_can_be_there():
    item = ruled({"type": "string", "maxLength": 1000}, "self.matches('^[a-z]+[0-9]+$')")
    lists = {"type": "array", "items": item}
    assert (
        "estimated rule cost exceeds budget"
        in texts(rule_errors({"type": "object", "properties": {"l": lists}}, AT))[0]
    )
    assert rule_errors({"type": "object", "properties": {"l": {**lists, "maxItems": 50}}}, AT) == []


def test_rules_that_exceed_the_budget_together_are_named():
    text = {"type": "array", "maxItems": 700, "items": {"type": "string", "maxLength": 2}}
    rule = "self.all(x, self.all(y, x == y))"
    errors = texts(rule_errors(ruled(text, *[rule] * 45), AT))
    assert len([error for error in errors if "contributed to estimated rule cost total" in error]) == 4
    assert errors[-1].startswith(f"{AT}: Forbidden: x-kubernetes-validations estimated rule cost total for entire")


def test_a_default_keeps_to_the_rules():
    size = {**ruled(INT, {"rule": "self % 2 == 0", "message": "must be even"}), "default": 3}
    errors = texts(rule_errors({"type": "object", "properties": {"size": size}}, AT))
    assert errors == [f"{AT}.properties[size].default: Invalid value: 3: must be even"]


def test_without_cel_a_definition_with_rules_is_rejected(monkeypatch):
    def missing():
        raise environment.Unavailable("CEL expressions need the package cel-expr-python")

    monkeypatch.setattr(environment, "library", missing)
    environment.checking.cache_clear()
    [found] = texts(rule_errors(ruled(INT, "self > 41 // nobody else says this"), AT))
    assert found == f"{RULE}: Forbidden: CEL expressions need the package cel-expr-python"


# --- lists without order ----------------------------------------------------------------------------------------------

SET = {"type": "array", "maxItems": 9, "x-kubernetes-list-type": "set", "items": TEXT}
LIST = {"type": "array", "maxItems": 9, "items": TEXT}
SETS = {
    "type": "object",
    "properties": {
        "one": SET,
        "other": SET,
        "list": LIST,
        "deep": {"type": "object", "properties": {"one": SET}},
        "deeper": {"type": "object", "properties": {"one": SET}},
        "keyed": {**KEYED, "items": {"type": "object", "properties": {"name": TEXT, "one": SET}}},
        "many": {"type": "array", "maxItems": 9, "items": {"type": "object", "properties": {"one": SET, "n": INT}}},
    },
}


@pytest.mark.parametrize(
    "rule",
    [
        "self.one == oldSelf.one",
        "oldSelf.deep.one != self.deep.one",
        "self == oldSelf && self.deep == oldSelf.deep && self.many == oldSelf.many",
        "self.list == ['a'] && self.list + ['b'] == self.list",
        "sets.equivalent(self.one, ['a', 'b'])",
        "self.many.all(each, each.n == 1)",
        "self.one.all(each, each == 'a') && self.one.map(each, each + 'b') == ['ab']",
        "self.one.size() == self.other.size()",
        "oldSelf.keyed.all(old, self.keyed.exists(new, new == old))",
        {"rule": "self.one == oldSelf.value().one", "optionalOldSelf": True},
        {"rule": "oldSelf.hasValue() && oldSelf.value() == self", "optionalOldSelf": True},
    ],
)
def test_lists_without_order_may_be_used_where_order_does_not_count(rule):
    assert rule_errors(ruled(SETS, rule), AT) == []


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("self.one == ['a', 'b']", "1:10"),
        ("self.one == self.other", "1:10"),
        ("self.one != oldSelf.other", "1:10"),
        ("self.deep == self.deeper", "1:11"),
        ("self.many.all(x, self.many.exists(y, x == y))", "1:40"),
        ("self.many[0].one == oldSelf.many[1].one", "1:18"),
        ("self.?one.orValue([]) == ['a']", "1:23"),
        ({"rule": "oldSelf.value().one == self.other", "optionalOldSelf": True}, "1:21"),
    ],
)
def test_a_comparison_of_unordered_lists_is_rejected(rule, place):
    [found] = texts(rule_errors(ruled(SETS, rule), AT))
    assert f"compilation failed: ERROR: <input>:{place}: lists of type set or map can be compared with what" in found


def test_nothing_is_added_to_a_list_without_order():
    [found] = texts(rule_errors(ruled(SETS, "(self.one + ['a']).size() < 5"), AT))
    assert "<input>:1:11: lists of type set or map cannot be added; use a macro" in found
