"""Changes as sets of fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.apply.compare import compare
from podwire.kinds.apply.fieldsets import intersection
from tests.kinds.apply.conftest import custom, widget

A, B = 'k:{"name":"a"}', 'k:{"name":"b"}'


def spec(**fields):
    return {f"f:{name}": below for name, below in fields.items()}


CASES = [
    pytest.param({"text": "a"}, {"text": "a"}, {}, {}, {}, id="the same"),
    pytest.param({"text": "a"}, {"text": "b"}, {}, spec(text={}), {}, id="a scalar"),
    pytest.param({}, {"text": "b"}, {}, {}, spec(text={}), id="a new scalar"),
    pytest.param({"text": "b"}, {}, spec(text={}), {}, {}, id="a scalar less"),
    pytest.param({"whole": {"a": "1"}}, {"whole": {"a": "2"}}, {}, spec(whole={}), {}, id="atomic map"),
    pytest.param({"list": ["a"]}, {"list": ["b"]}, {}, spec(list={}), {}, id="atomic list"),
    pytest.param({}, {"map": {"x": "1"}}, {}, {}, spec(map={".": {}, "f:x": {}}), id="a new map and its members"),
    pytest.param({"map": {"x": "1"}}, {"map": {"y": "1"}}, spec(map=spec(x={})), {}, spec(map=spec(y={})), id="map"),
    pytest.param({"map": {}}, {"map": {"y": "1"}}, {}, {}, spec(map=spec(y={})), id="a map that was empty"),
    pytest.param({"set": ["a"]}, {"set": ["b"]}, spec(set={'v:"a"': {}}), {}, spec(set={'v:"b"': {}}), id="set"),
    pytest.param({"set": ["a", "b"]}, {"set": ["b", "a"]}, {}, {}, {}, id="the order of a set is nothing"),
    pytest.param(
        {"items": [{"name": "a", "value": "1"}]},
        {"items": [{"name": "a", "value": "2"}, {"name": "b"}]},
        {},
        spec(items={A: spec(value={})}),
        spec(items={B: {".": {}, "f:name": {}}}),
        id="list by key",
    ),
    pytest.param(
        {"items": [{"name": "a"}, {"name": "a", "size": 1}]},
        {"items": [{"name": "a"}]},
        {},
        spec(items={A: {}}),
        {},
        id="twins are one value",
    ),
    pytest.param({"open": {"x": {"y": 1}}}, {"open": {"x": 2}}, spec(open=spec(x=spec(y={}))),
                 spec(open=spec(x={})), {}, id="an object in the open becomes a number"),
    pytest.param({"open": {"x": {"y": 1}}}, {"open": {"x": {"y": 2}}}, {}, spec(open=spec(x=spec(y={}))), {},
                 id="a member in the open"),
    pytest.param({"struct": None}, {"struct": {"a": "1"}}, {}, {}, spec(struct=spec(a={})), id="null is an empty map"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "removed", "modified", "added"), CASES)
def test_changes_are_sets_of_fields(old, new, removed, modified, added):
    found = compare(custom().type, widget(**old), widget(**new))
    wanted = [{"f:spec": item} if item else {} for item in (removed, modified, added)]
    assert [found.removed, found.modified, found.added] == wanted
    assert found.same == (old == new or not any((removed, modified, added)))


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from("ab"),
        "map": st.dictionaries(st.sampled_from("xyz"), st.sampled_from("ab")),
        "set": st.lists(st.sampled_from("abc"), unique=True),
        "items": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from("ab")}, optional={"value": st.sampled_from("12")}),
            unique_by=lambda each: each["name"],
        ),
        "open": st.dictionaries(st.sampled_from("xy"), st.dictionaries(st.sampled_from("pq"), st.integers(0, 2))),
    },
)


@given(SPECS, SPECS)
def test_the_reverse_comparison_swaps_added_and_removed(old, new):
    there, back = (compare(custom().type, widget(**one), widget(**other)) for one, other in ((old, new), (new, old)))
    assert (there.added, there.removed, there.modified) == (back.removed, back.added, back.modified)


@given(SPECS, SPECS)
def test_no_field_changes_in_two_ways(old, new):
    found = compare(custom().type, widget(**old), widget(**new))
    assert not intersection(found.added, found.removed)
    assert not intersection(found.added, found.modified)
    assert not intersection(found.modified, found.removed)
