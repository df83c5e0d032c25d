"""Worst-case cost of an expression."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.cel import compile_expression
from podwire.protocols.cel.cost import MOST, ONE, Size, estimate
from podwire.protocols.cel.types import DYN, INT, STRING, list_of, map_of, struct

MIB = 1024 * 1024
TYPES = {
    "few": list_of(STRING),
    "many": list_of(STRING),
    "pairs": map_of(STRING, STRING),
    "number": INT,
    "text": STRING,
    "self": struct([("few", list_of(STRING)), ("number", INT)]),
    "what": DYN,
}
FEW = Size(10, Size(20))
SIZES = {
    "few": FEW,
    "many": Size(MIB, Size(3 * MIB)),
    "pairs": Size(5, Size(7), Size(3 * MIB)),
    "number": ONE,
    "text": Size(1000),
    "self": Size(fields={"few": FEW, "number": ONE}),
}


def cost(expression):
    return estimate(compile_expression(expression, TYPES).tree, SIZES)


@pytest.mark.parametrize(
    ("expression", "reported"),
    [
        ("true", 0),
        ("number > 1", 2),
        ("self.number > 1", 3),
        ("has(self.few)", 1),
        ("text == 'abc'", 2),
        ("text + text == text", 303),
        ("text.startsWith('abc')", 2),
        ("text.contains('abc')", 101),
        ("text.matches('^[a-z]+$')", 203),
        ("text in few", 12),
        ("isCIDR(text)", 101),
        ("ip(text).family() == 4", 103),
        ("format.dns1123Label().validate(text).hasValue()", 3203),
        ("text.replace('a', 'b').size() > 1", 203),
        ("text.split(',').all(x, x == '')", 3202),
        ("duration(text) > duration('1s')", 4),
        ("few.isSorted()", 31),
        ("few.indexOf('a') == 1", 32),
        ("few.all(x, x == 'a')", 42),
        ("few.all(x, few.all(y, x == y))", 642),
        ("pairs.all(k, v, k == v)", 27),
        ("few.map(x, x + x).size() > 10", 194),
        ("[1, 2, 3].sum() == 6", 14),
        ("cel.bind(a, text + text, a + a).size() > 1", 616),
        ("number == 1 ? text.matches('abc') : true", 104),
    ],
)
def test_the_cost_is_that_of_the_worst_branch(expression, reported):
    assert cost(expression) == reported


def test_the_cost_of_unknown_sizes_is_unbounded():
    assert cost("what.all(x, what.all(y, x == y))") == MOST


def test_a_loop_within_a_loop_costs_the_square():
    assert cost("many.all(x, many.all(y, x == y))") > MIB * MIB
    assert MIB < cost("many.all(x, x == 'a')") < 10 * MIB


def test_texts_that_are_doubled_again_and_again_are_dear():
    nested = "z.size() > 1"
    for name, source in zip("zyxwvutsrq", "yxwvutsrq" + "p", strict=True):
        nested = f"cel.bind({name}, {source} + {source}, {nested})"
    assert cost(f"cel.bind(p, text, {nested})") > 2**10 * 100


PARTS = st.sampled_from(["number > 1", "text == 'a'", "few.all(x, x != '')", "text.matches('a+')", "'a' in few"])


@given(st.lists(PARTS, min_size=1, max_size=6))
def test_a_part_never_makes_the_whole_cheaper(parts):
    costs = [cost(" && ".join(parts[:count])) for count in range(1, len(parts) + 1)]
    assert costs == sorted(costs)
