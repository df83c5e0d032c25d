import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.patches import merge_patch

# The examples of RFC 7386, appendix A
EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), EXAMPLES)
def test_the_examples_of_the_rfc(target, patch, result):
    assert merge_patch.apply(target, patch) == result


VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def difference(old, new):
    """The merge patch that leads from one object to the other."""
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            patch[key] = difference(old[key], value)
        elif key not in old or old[key] != value or type(old[key]) is not type(value):
            patch[key] = value
    return patch


@given(OBJECTS, OBJECTS)
def test_the_patch_of_a_difference_leads_to_the_target(old, new):
    assert merge_patch.apply(old, difference(old, new)) == new


@given(OBJECTS, OBJECTS)
def test_applying_twice_is_applying_once(old, patch):
    once = merge_patch.apply(old, patch)
    assert merge_patch.apply(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_nothing_is_changed_in_place(old, patch):
    before = copy.deepcopy((old, patch))
    merge_patch.apply(old, patch)
    assert (old, patch) == before


def test_untouched_values_are_shared():
    old = {"spec": {"containers": [{"name": "c"}]}, "metadata": {"labels": {"a": "1"}}}
    new = merge_patch.apply(old, {"metadata": {"labels": {"a": "2"}}})
    assert new["spec"] is old["spec"]
    assert old["metadata"]["labels"] == {"a": "1"}
