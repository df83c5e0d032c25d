# ruff: noqa: E501 -- tables of cases: one a line reads better than six
import copy
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.patches import PatchError, json_patch
from podwire.kinds.patches.json_patch import MAX_OPERATIONS


def op(name, path, value=..., source=None):
    given = {"op": name, "path": path}
    if value is not ...:
        given["value"] = value
    if source is not None:
        given["from"] = source
    return given


@pytest.mark.parametrize(
    ("obj", "operations", "result"),
    [
        # RFC 6902, appendix A
        pytest.param({"foo": "bar"}, [op("add", "/baz", "qux")], {"baz": "qux", "foo": "bar"}, id="add a member"),
        pytest.param({"a": [1, 3]}, [op("add", "/a/1", 2)], {"a": [1, 2, 3]}, id="add an element"),
        pytest.param({"a": 1, "b": 2}, [op("remove", "/a")], {"b": 2}, id="remove a member"),
        pytest.param({"a": [1, 2, 3]}, [op("remove", "/a/1")], {"a": [1, 3]}, id="remove an element"),
        pytest.param({"a": 1}, [op("replace", "/a", [2])], {"a": [2]}, id="replace a member"),
        pytest.param({"a": {"b": 1}, "c": {}}, [op("move", "/c/d", source="/a/b")], {"a": {}, "c": {"d": 1}}, id="move"),
        pytest.param({"a": [1, 2, 3]}, [op("move", "/a/2", source="/a/0")], {"a": [2, 3, 1]}, id="move in a list"),
        pytest.param({"a": ["x", 2]}, [op("test", "/a/0", "x"), op("test", "", {"a": ["x", 2]})], {"a": ["x", 2]}, id="test"),
        pytest.param({"a": 1}, [op("add", "/c", {"d": {}})], {"a": 1, "c": {"d": {}}}, id="add an object"),
        pytest.param({"a": [1]}, [op("add", "/a/-", [2])], {"a": [1, [2]]}, id="add at the end"),
        pytest.param({"/": 9, "~1": 10}, [op("test", "/~01", 10), op("remove", "/~1")], {"~1": 10}, id="escapes"),
        # and beyond
        pytest.param({"a": 1}, [op("add", "/a", None)], {"a": None}, id="add replaces, null is a value"),
        pytest.param({"a": 1}, [op("replace", "", {"b": 2})], {"b": 2}, id="replace everything"),
        pytest.param({"": {"": 1}}, [op("remove", "//")], {"": {}}, id="empty names"),
        pytest.param({"0": 1}, [op("remove", "/0")], {}, id="a number is a name in an object"),
        pytest.param({"a": [1]}, [op("copy", "/a/0", source="/a")], {"a": [[1], 1]}, id="copy into itself"),
        pytest.param({"a": 1}, [op("move", "/a", source="/a")], {"a": 1}, id="move to where it is"),
        pytest.param({"a": 1}, [op("test", "/a", 1.0)], {"a": 1}, id="1 is 1.0"),
        pytest.param({}, [op("replace", "/a", 1)], {"a": 1}, id="replace what is not there"),
        pytest.param({}, [op("test", "/a", None)], {}, id="what is not there is null"),
        pytest.param({"a": 1}, [], {"a": 1}, id="nothing to do"),
        pytest.param(
            {"a": {"n": 0}},
            [op("copy", "/b", source="/a"), op("replace", "/a/n", 1), op("replace", "/b/n", 2)],
            {"a": {"n": 1}, "b": {"n": 2}},
            id="a copy lives on its own",
        ),
        pytest.param(
            {"a": {"n": {"m": 0}}},
            [op("add", "/a/x", 1), op("copy", "/b", source="/a"), op("add", "/a/n/m", 5)],
            {"a": {"n": {"m": 5}, "x": 1}, "b": {"n": {"m": 0}, "x": 1}},
            id="also of what was changed before",
        ),
    ],
)  # fmt: skip
def test_operations(obj, operations, result):
    assert json_patch.apply(obj, operations) == result


@pytest.mark.parametrize(
    ("obj", "operations", "code", "message"),
    [
        pytest.param({}, {"op": "add"}, 400, "must be a list", id="no list"),
        pytest.param({}, ["add"], 400, "operation 0: must be an object", id="no operation"),
        pytest.param({}, [op("frob", "/a")], 422, "op must be one of add, copy", id="unknown op"),
        pytest.param({}, [{"op": "add", "value": 1}], 400, "path must be a JSON pointer", id="no path"),
        pytest.param({}, [op("add", "a", 1)], 400, "path must be a JSON pointer", id="no slash"),
        pytest.param({}, [op("add", "/a~2", 1)], 400, "path must be a JSON pointer", id="a bad escape"),
        pytest.param({}, [op("add", "/a")], 400, "add needs a value", id="no value"),
        pytest.param({}, [op("copy", "/a")], 400, "from must be a JSON pointer", id="no from"),
        pytest.param({"a": 1}, [op("test", "/a", 2)], 422, "operation 0: test /a: test failed", id="test"),
        pytest.param({"a": 1}, [op("test", "/a", True)], 422, "test failed", id="true is not 1"),
        pytest.param({"a": [0]}, [op("test", "/a", [False])], 422, "test failed", id="false is not 0"),
        pytest.param({"a": {}}, [op("test", "/a", {"b": None})], 422, "test failed", id="null is a member"),
        pytest.param({}, [op("test", "/a", 1)], 422, "test failed", id="test of nothing"),
        pytest.param({}, [op("test", "/a/b", None)], 422, "the object has no /a", id="test below nothing"),
        pytest.param({"x": 1}, [op("test", "/x", 1), op("remove", "/a~1b")], 422, "operation 1: remove /a~1b: the object has no /a~1b", id="remove nothing"),
        pytest.param({}, [op("add", "/a/b", 1)], 422, "the object has no /a/b", id="add below nothing"),
        pytest.param({"a": "s"}, [op("add", "/a/b", 1)], 422, "the object has no /a/b", id="add below a string"),
        pytest.param({"a": [1]}, [op("replace", "/a/1", 1)], 422, "index 1 is out of bounds", id="replace behind the end"),
        pytest.param({"a": [1]}, [op("add", "/a/2", 1)], 422, "index 2 is out of bounds", id="add behind the end"),
        pytest.param({"a": [1]}, [op("remove", "/a/-")], 422, "'-' is not a list index", id="remove the end"),
        pytest.param({"a": [1]}, [op("remove", "/a/-1")], 422, "'-1' is not a list index", id="a negative index"),
        pytest.param({"a": [1, 2]}, [op("remove", "/a/01")], 422, "'01' is not a list index", id="a leading zero"),
        pytest.param({"a": [1, 2]}, [op("remove", "/a/\u0661")], 422, "is not a list index", id="another script's digit"),
        pytest.param({"a": [1]}, [op("remove", f"/a/{'9' * 5000}")], 422, "is not a list index", id="a very long index"),
        pytest.param({"a": {}}, [op("move", "/a/b", source="/a")], 422, "cannot be moved into itself", id="move into itself"),
        pytest.param({}, [op("remove", "")], 422, "cannot be removed", id="remove everything"),
        pytest.param({}, [op("copy", "/a", source="/b")], 422, "the object has no /b", id="copy nothing"),
        pytest.param({}, [op("add", "/a" * 101, 1)], 422, "more than 100 levels deep", id="a long path"),
    ],
)  # fmt: skip
def test_operations_that_do_not_apply_are_rejected(obj, operations, code, message):
    before = copy.deepcopy(obj)
    with pytest.raises(PatchError) as refused:
        json_patch.apply(obj, operations)
    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value
    assert obj == before


def deep(levels):
    value = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_results_are_at_most_as_deep_as_bodies():
    assert json_patch.apply(deep(50), [op("add", "/a" * 50, deep(50))]) == deep(100)
    for operations in (
        [op("add", "/a" * 50, deep(51))],
        [op("replace", "/a" * 50, deep(51))],
        [op("add", "/b", deep(51)), op("move", "/a" * 50, source="/b")],
        [op("copy", "/a" * 50, source=""), op("copy", "/a" * 100, source="")],
    ):
        with pytest.raises(PatchError, match="nested more than 100 levels deep"):
            json_patch.apply(deep(51), operations)


def test_nesting_by_moves_ends():
    moves = [op("move", "/b/a", source="/a"), op("move", "/a", source="/b"), op("add", "/b", {})]
    with pytest.raises(PatchError, match="levels deep"):
        json_patch.apply({"a": {}, "b": {}}, moves * 500)


def test_ten_thousand_operations_are_allowed_and_one_more_is_not():
    operations = [op("add", "/l/0", 1)] * MAX_OPERATIONS
    assert len(json_patch.apply({"l": []}, operations)["l"]) == MAX_OPERATIONS
    with pytest.raises(PatchError, match="maximum operations in a JSON patch is 10000, got 10001") as refused:
        json_patch.apply({"l": []}, [*operations, op("add", "/l/0", 1)])
    assert refused.value.code == 413


@pytest.mark.parametrize(
    ("obj", "operations"),
    [
        pytest.param(
            {"a": ["x" * 1000]}, [op("copy", "/a/-", source="/a")] * 60, id="each copy doubles"
        ),
        pytest.param(
            {"a": ["x" * 1000] * 1000, "b": 1},
            [op("move", "/b", source="/a"), op("move", "/a", source="/b")] * 5000,
            id="a large value to and fro",
        ),
        pytest.param({"l": [0] * 700_000}, [op("add", "/l/0", 1)] * 10_000, id="at the head of a long list"),
        pytest.param({"l": [0] * 700_000}, [op("remove", "/l/0")] * 10_000, id="from the head of a long list"),
    ],
)  # fmt: skip
def test_a_patch_that_copies_too_much_is_rejected_soon(obj, operations):
    begun = time.process_time()
    with pytest.raises(PatchError, match="moves and copies too much") as refused:
        json_patch.apply(obj, operations)
    assert refused.value.code == 413
    assert time.process_time() - begun < 5


NAMES = st.sampled_from(["a", "b", "0", "1", "-", "~/"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
POINTERS = st.lists(NAMES, max_size=3).map(
    lambda names: "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
)
OPERATIONS = st.lists(
    st.builds(op, st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), POINTERS, VALUES, POINTERS),
    max_size=8,
)


def naive(obj, operations):
    """One deep copy per operation: slow, and obviously not sharing anything."""
    for operation in operations:
        obj = json_patch.apply(copy.deepcopy(obj), [copy.deepcopy(operation)])
    return obj


@given(VALUES, OPERATIONS)
def test_sharing_makes_no_difference(obj, operations):
    before = copy.deepcopy((obj, operations))
    try:
        expected = naive(obj, operations)
    except PatchError:
        with pytest.raises(PatchError):
            json_patch.apply(obj, operations)
    else:
        assert json_patch.apply(obj, operations) == expected
    assert (obj, operations) == before


def test_untouched_values_are_shared():
    old = {"spec": {"containers": [{"name": "c"}]}, "metadata": {"labels": {"a": "1"}}}
    new = json_patch.apply(old, [op("replace", "/metadata/labels/a", "2")])
    assert new["spec"] is old["spec"]
    assert old["metadata"]["labels"] == {"a": "1"}
