"""Sets of completion indexes as intervals, compared with plain sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers.batch import indexes

SETS = st.sets(st.integers(0, 40))


@pytest.mark.parametrize(
    ("text", "completions", "intervals"),
    [
        ("", 5, ()),
        ("1,3-5,7", 10, ((1, 1), (3, 5), (7, 7))),
        ("1,3-5,7", 5, ((1, 1), (3, 4))),
        ("0,1,2", 9, ((0, 2),)),
        ("x,2,4-y,5", 9, ((2, 2), (5, 5))),
        ("-3,1", 9, ((1, 1),)),
        ("5-3", 9, ()),
        ("9999999999999", 9, ()),
    ],
)
def test_written_indexes_are_read_and_corrupted_parts_ignored(text, completions, intervals):
    assert indexes.parse(text, completions) == intervals


@given(SETS)
def test_indexes_survive_writing_and_reading(numbers):
    intervals = indexes.of(numbers)
    assert indexes.parse(indexes.text_of(intervals), 41) == intervals
    assert indexes.total(intervals) == len(numbers)
    assert {number for number in range(41) if indexes.contains(intervals, number)} == numbers


def test_two_neighbours_are_listed_and_more_are_a_range():
    assert indexes.text_of(indexes.of([1, 2, 4, 5, 6, 9])) == "1,2,4-6,9"


@given(SETS, SETS)
def test_union_and_overlap_are_those_of_sets(one, other):
    first, second = indexes.of(one), indexes.of(other)
    assert indexes.union(first, second) == indexes.of(one | other)
    assert indexes.overlap(first, second) == len(one & other)


@given(SETS, st.integers(0, 50), st.integers(0, 50))
def test_free_indexes_are_the_lowest_ones(taken, count, completions):
    free = [number for number in range(completions) if number not in taken]
    assert indexes.first_outside(indexes.of(taken), count, completions) == free[:count]
