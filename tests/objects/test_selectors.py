"""Selectors choose what their words say and refuse what they cannot read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects.selectors import (
    EVERYTHING,
    NOTHING,
    FieldRequirement,
    FieldSelector,
    escape,
    from_labels,
    from_object,
    parse_fields,
    parse_labels,
    unescape,
)

WEB = {"app": "web", "tier": "front", "n": "5", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web , tier=front", True),
        ("app=db", False),
        ("app!=db", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app in (web,db)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("missing notin (db)", True),
        ("missing in (db)", False),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("!app", False),
        ("empty=", True),
        ("empty in ()", True),
        ("empty in (,x)", True),
        ("app in (x,,y)", False),
        ("n>4", True),
        ("n<4", False),
        ("app>4", False),
        ("missing>4", False),
        ("app=web,!app", False),
        ("in=x", False),
        ("app in (in,web)", True),
        ("empty=,app=web", True),
    ],
)
def test_labels_are_selected(text, matches):
    assert parse_labels(text).matches(WEB) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(",", "found ',', expected: !, identifier, or 'end of string'", id="comma first"),
        pytest.param("a=b,", "found '', expected: identifier after ','", id="comma last"),
        pytest.param("a=b c", "found 'c', expected: ',' or 'end of string'", id="two words"),
        pytest.param("!a=b", "found '=', expected: ',' or 'end of string'", id="not and equals"),
        pytest.param("a in b", "unable to parse requirement: found 'b' expected: '('", id="no parenthesis"),
        pytest.param("a in (b", "unable to parse requirement: found '', expected: ',' or ')'", id="open parenthesis"),
        pytest.param(
            "a (b)", "unable to parse requirement: found '(', expected: in, notin, =, ==, !=, gt, lt", id="op"
        ),
        pytest.param("a=(b)", "unable to parse requirement: found '(', expected: identifier", id="list for equals"),
        pytest.param("!", "unable to parse requirement: found '', expected: identifier", id="not nothing"),
        pytest.param(
            "n>x",
            'unable to parse requirement: values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
            id="greater than a word",
        ),
    ],
)
def test_an_invalid_label_selector_gives_the_reason(text, message):
    with pytest.raises(ValueError) as refused:
        parse_labels(text)
    assert str(refused.value) == message


def test_keys_and_values_are_validated():
    with pytest.raises(ValueError, match='<nil>: Invalid value: "a/b/c": a valid label key'):
        parse_labels("a/b/c=d")
    with pytest.raises(ValueError, match=r'values\[0\]\[a\]: Invalid value: "-": a valid label must be'):
        parse_labels("a=-")


def test_a_selector_to_keep_us_busy_is_refused():
    with pytest.raises(ValueError, match="longer than"):
        parse_labels("a" * 100_000)
    with pytest.raises(ValueError, match="more than 1000 requirements"):
        parse_labels(",".join("a" for _ in range(2000)))
    with pytest.raises(ValueError, match="more than 1000 requirements"):
        parse_fields(",".join("a=b" for _ in range(2000)))


def test_the_object_form_selects_alike():
    selector = from_object(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "tier", "operator": "NotIn", "values": ["back"]},
                {"key": "n", "operator": "Exists"},
                {"key": "missing", "operator": "DoesNotExist"},
            ],
        }
    )
    assert selector.matches(WEB)
    assert str(selector) == "app=web,!missing,n,tier in (back,front),tier notin (back)"
    assert parse_labels(str(selector)) == selector


def test_no_selector_selects_nothing_and_an_empty_one_everything():
    assert from_object(None) == NOTHING
    assert not NOTHING.matches(WEB)
    assert from_object({}) == EVERYTHING == parse_labels(" ")
    assert EVERYTHING.everything
    assert not NOTHING.everything


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "Equals", "values": ["b"]},
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["b"]},
        {"operator": "Exists"},
    ],
)
def test_an_object_form_that_no_validation_has_seen_is_refused(expression):
    with pytest.raises(ValueError):
        from_object({"matchExpressions": [expression]})


def test_plain_labels_select_objects_that_have_them_all():
    assert from_labels({"app": "web"}).matches(WEB)
    assert not from_labels({"app": "web", "x": "y"}).matches(WEB)


label_texts = st.from_regex(r"\A[a-z]([-a-z0-9_.]{0,8}[a-z0-9])?\Z")


@given(st.dictionaries(label_texts, label_texts, max_size=4), st.dictionaries(label_texts, label_texts, max_size=4))
def test_equality_selects_supersets(wanted, labels):
    text = ",".join(f"{key}={value}" for key, value in wanted.items())
    assert parse_labels(text).matches(labels) is (wanted.items() <= labels.items())


@given(label_texts, st.sets(label_texts, min_size=1, max_size=4), st.dictionaries(label_texts, label_texts, max_size=4))
def test_in_and_notin_are_opposites(key, values, labels):
    listed = ",".join(values)
    inside = parse_labels(f"{key} in ({listed})").matches(labels)
    assert parse_labels(f"{key} notin ({listed})").matches(labels) is not inside


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_cleanly(text):
    for parse in (parse_labels, parse_fields):
        try:
            selector = parse(text)
        except ValueError:
            continue
        assert parse(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n1", True),
        ("spec.nodeName!=n1", False),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("spec.nodeName=n1,status.phase=Failed", False),
        ("missing=", True),
        ("missing!=", False),
    ],
)
def test_fields_are_selected(text, matches):
    assert parse_fields(text).matches({"spec.nodeName": "n1", "status.phase": "Running"}) is matches


def test_field_requirements_can_be_read():
    selector = parse_fields(r"metadata.name=a\,b\=c\\,x!=y")
    assert selector == FieldSelector((FieldRequirement("metadata.name", "a,b=c\\"), FieldRequirement("x", "y", False)))
    assert selector.exact("metadata.name") == "a,b=c\\"
    assert selector.exact("x") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a", "invalid selector: 'a'; can't understand 'a'", id="no operator"),
        pytest.param("a=b=c", "invalid field selector: unescaped character in value: 61", id="bare equals"),
        pytest.param(r"a=\x", r"invalid field selector: invalid escape sequence: \x", id="unknown escape"),
        pytest.param("a=\\", "invalid field selector: invalid escape sequence: \\", id="escape at the end"),
    ],
)
def test_an_invalid_field_selector_gives_the_reason(text, message):
    with pytest.raises(ValueError) as refused:
        parse_fields(text)
    assert str(refused.value) == message


@given(st.text())
def test_unescaping_undoes_escaping(value):
    assert unescape(escape(value)) == value
