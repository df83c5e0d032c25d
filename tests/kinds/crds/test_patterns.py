"""Patterns that are written for RE2."""

import random
import re
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.crds.automaton import TooCostly, metered
from podwire.kinds.crds.patterns import BadPattern, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        pytest.param("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "web-1", True, id="a DNS label"),
        pytest.param("b", "abc", True, id="anywhere in the text"),
        pytest.param("a$", "a\n", False, id="the end is the end"),
        pytest.param(r"a\z", "a\n", False, id="the end in RE2's own words"),
        pytest.param("(?m)a$", "a\nb", True, id="the end of a line when asked for"),
        pytest.param("^[[:alpha:]_]+$", "a_B", True, id="named classes"),
        pytest.param(r"^[][&&|~-]+$", "[]&~|-", True, id="brackets and operators in a class"),
        pytest.param(r"^\d+$", "٣", False, id="digits are ASCII"),
        pytest.param("^(?P<n>a)(?:b)(?i:C)$", "abc", True, id="groups"),
        pytest.param("^(?<n>a)$", "a", True, id="named groups in the new form"),
        pytest.param(r"^\x41\x{1F600}$", "A😀", True, id="characters by number"),
        pytest.param(r"^a{2,3}?$", "aaa", True, id="lazy repetition"),
        pytest.param(r"^[^\]]$", "x", True, id="a class without a bracket"),
        pytest.param(r"^a\.b/c$", "a.b/c", True, id="escaped punctuation"),
        pytest.param("^a(?i)b$", "aB", True, id="flags in the middle"),
        pytest.param("^(?:(?i)a)b$", "AB", False, id="flags to the end of their group"),
        pytest.param("(?i)^a(?-i:b)$", "AB", False, id="flags off"),
        pytest.param("^.$", "\n", False, id="a line break is no dot"),
        pytest.param("(?s)^.$", "\n", True, id="a line break is a dot when asked for"),
        pytest.param("(?m)^b", "a\nb", True, id="the beginning of a line"),
        pytest.param("^b", "a\nb", False, id="the beginning of the text"),
        pytest.param(r"\bb\b", "a b c", True, id="a word"),
        pytest.param(r"\bb\b", "abc", False, id="within a word"),
        pytest.param(r"\Bb\B", "abc", True, id="no end of a word"),
        pytest.param("^a{0}$", "", True, id="not at all"),
        pytest.param("^(a|b|)*c{2,}$", "abbacc", True, id="empty alternatives, repeated"),
        pytest.param("^(a*)*$", "aaab", False, id="repetition of repetition"),
        pytest.param("a{,2}", "a{,2}", True, id="braces that count nothing"),
        pytest.param("", "", True, id="nothing"),
    ],
)
def test_patterns_find_what_re2_would(pattern, text, found):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bool(compile_pattern(pattern)(text)) is found


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        pytest.param(r"(a)\1", "back-reference", id="back-reference"),
        pytest.param("a(?=b)", "look-around", id="look-ahead"),
        pytest.param("a(?!b)", "look-around", id="negative look-ahead"),
        pytest.param("(?<=a)b", "look-around", id="look-behind"),
        pytest.param("(?P<n>a)(?P=n)", "look-around", id="named back-reference"),
        pytest.param("a++", "nested repetition", id="possessive"),
        pytest.param("(?>a)", "look-around", id="atomic"),
        pytest.param(r"\p{Greek}", r"\\p", id="scripts"),
        pytest.param(r"[\p{Xx}]", "invalid character class range", id="no category"),
        pytest.param(r"(?i)\p{Lu}", "invalid character class range", id="a category in any case"),
        pytest.param("a)", "unexpected", id="a group that was not opened"),
        pytest.param("*a", "missing argument", id="nothing to repeat"),
        pytest.param("a|*", "missing argument", id="nothing to repeat in a choice"),
        pytest.param("a{2,1}", "repeat count", id="from two to one"),
        pytest.param("a{1001}", "repeat count", id="a thousand and one"),
        pytest.param("a{" + "9" * 1500 + "}", "repeat count", id="very often"),
        pytest.param("(a{1000}){1000}", "written out", id="a thousand thousand"),
        pytest.param("(" * 500 + ")" * 500, "nested", id="deep groups"),
        pytest.param("[z-a]", "bad character range", id="a range backwards"),
        pytest.param("(?z)a", "not supported", id="an unknown flag"),
        pytest.param("[a", "missing", id="open class"),
        pytest.param("(a", "missing", id="open group"),
        pytest.param("a\\", "not supported", id="trailing backslash"),
        pytest.param("[[:moon:]]", "invalid character class", id="no such class"),
        pytest.param("a" * 3000, "longer", id="too long"),
    ],
)
def test_what_cannot_be_matched_as_re2_does_is_refused(pattern, why):
    with pytest.raises(BadPattern, match=why):
        compile_pattern(pattern)


def expressions() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", r"\B", r"\w", "", "(?:a|b)", "_"])

    def larger(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        repeated = st.builds("(?:{}){}".format, part, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"]))
        return repeated | st.builds("(?:{}|{})".format, part, part) | st.builds("{}{}".format, part, part)

    return st.recursive(atoms, larger, max_leaves=6)


@given(expressions(), st.text("ab_ \n", min_size=1, max_size=6))
def test_a_pattern_finds_what_backtracking_would_find(pattern, text):
    expected = re.search(pattern.replace("$", r"\Z"), text, re.ASCII)
    assert compile_pattern(pattern)(text) is bool(expected)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*$", "(a*)*b", "^(a?){50}a{50}$", "(.*)*(.*)*(.*)*!", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$",
     "(a|b)*a(a|b){12}$", "^(\\w+\\s?)*$", "([a-zA-Z]+)*@"],
)  # fmt: skip
def test_a_pattern_that_would_backtrack_forever_takes_a_moment(pattern):
    begun = time.process_time()
    search = compile_pattern(pattern)
    for text in ("a" * 20_000 + "!", "ab" * 10_000 + "!", "x" * 20_000, "a " * 10_000 + "!"):
        search(text)
    assert time.process_time() - begun < 5


def test_a_pattern_with_more_states_than_anybody_can_keep_is_stopped():
    noise = random.Random(1)
    text = "".join(noise.choice("ab") for _ in range(200_000)) + "!"
    begun = time.process_time()
    with pytest.raises(TooCostly), metered():
        compile_pattern("(a|b)*a(a|b){500}$")(text)
    assert time.process_time() - begun < 10


def test_many_characters_are_not_all_remembered():
    search = compile_pattern("^.*!$")
    assert not search("".join(map(chr, range(0x4E00, 0x9FFF))))
    states = search.__self__._states.values()
    assert all(len(reached.leads) <= 1000 for state in states for reached in state.reached.values())


def test_all_searches_within_a_meter_share_what_may_be_spent():
    search = compile_pattern("a$")
    with pytest.raises(TooCostly), metered():
        _ = [search("b" * 100_000) for _ in range(30)]
    assert search("b" * 100_000 + "a")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"^\pL+$", "aé漢", "a1"),
        (r"^[a-z0-9\p{S}]+$", "a€1", "É"),
        (r"^\p{Lu}\PN$", "Éa", "É1"),
        (r"^[^\p{L}-]+$", "1€", "1-"),
        (r"^[\P{L}x]+$", "1x", "1y"),
        (r"^\p{^Nd}$", "a", "7"),
        (r"^[]\p{Zs}]+$", "] ", "a"),
    ],
)
def test_unicode_categories_are_known(pattern, yes, no):
    search = compile_pattern(pattern)
    assert search(yes)
    assert not search(no)
