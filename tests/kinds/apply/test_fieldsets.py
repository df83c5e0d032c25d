"""Sets of fields: the algebra holds, and every set has one form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.apply.fieldsets import difference, has, intersection, paths, tidy, union

NAMES = st.sampled_from(["f:a", "f:b", 'k:{"name":"c"}', 'v:"x"'])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(tuple)
SETS = st.frozensets(PATHS, max_size=8)


def made(members):
    """The set of these paths, put together one by one."""
    found = {}
    for path in members:
        one = {}
        for key in reversed(path):
            one = {key: one}
        found = union(found, one)
    return found


def settled(fields, root=True):
    """Whether a set is in its one form: no lonely dots, no nodes that stand for nothing."""
    return all(
        (key == "." and not below and not root and len(fields) > 1) or (key != "." and settled(below, root=False))
        for key, below in fields.items()
    )


@given(SETS)
def test_a_set_has_the_paths_that_it_was_made_of(members):
    fields = made(members)
    assert set(paths(fields)) == members
    assert all(has(fields, member) for member in members)
    assert settled(fields)


@given(SETS, SETS)
def test_union_difference_and_intersection_are_those_of_sets(one, other):
    for operation, wanted in ((union, one | other), (difference, one - other), (intersection, one & other)):
        found = operation(made(one), made(other))
        assert set(paths(found)) == wanted
        assert settled(found)


@given(SETS, SETS)
def test_operations_do_not_change_their_arguments(one, other):
    mine, theirs = made(one), made(other)
    for operation in (union, difference, intersection):
        operation(mine, theirs)
    assert (mine, theirs) == (made(one), made(other))


@given(SETS)
def test_a_written_set_reads_back_equal(members):
    assert tidy(made(members)) == made(members)


@pytest.mark.parametrize(
    ("given_set", "wanted"),
    [
        pytest.param({"f:a": {".": {}}}, {"f:a": {}}, id="a lonely dot"),
        pytest.param(
            {"f:a": {".": {"x": 1}, "f:b": {}}}, {"f:a": {".": {}, "f:b": {}}}, id="a dot with something below"
        ),
    ],
)
def test_a_client_s_set_is_put_in_order(given_set, wanted):
    assert tidy(given_set) == wanted


@pytest.mark.parametrize("nonsense", [1, [], {"a": {}}, {"f:a": 1}, {"f:a": {"f:b": None}}])
def test_invalid_sets_are_rejected(nonsense):
    with pytest.raises(ValueError, match=r"must be an object|unknown path element"):
        tidy(nonsense)


def test_a_set_deeper_than_any_object_is_rejected():
    deep = {}
    for _ in range(300):
        deep = {"f:a": deep}
    with pytest.raises(ValueError, match="must be an object"):
        tidy(deep)


@pytest.mark.parametrize("path", [(), ("f:b",), ("f:a", "f:x"), ("f:a",)])
def test_a_field_that_leads_to_another_is_not_in_the_set_for_that(path):
    assert not has({"f:a": {"f:b": {}}}, path)
