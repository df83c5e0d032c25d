"""Patterns that are written for RE2."""

import random
import re
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.crds.patterns import BadPattern, TooCostly, compile_pattern, metered


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
        pytest.param("^.$", "\n", False, id="a line break is not a dot"),
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
def test_patterns_match_as_gos_regexp_does(pattern, text, found):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bool(compile_pattern(pattern)(text)) is found


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        pytest.param(r"(a)\1", "invalid escape sequence", id="back-reference"),
        pytest.param("a(?=b)", "invalid perl operator", id="look-ahead"),
        pytest.param("a(?!b)", "invalid perl operator", id="negative look-ahead"),
        pytest.param("(?<=a)b", "invalid perl operator", id="look-behind"),
        pytest.param("(?P<n>a)(?P=n)", "invalid perl operator", id="named back-reference"),
        pytest.param("a++", "bad repetition operator", id="possessive"),
        pytest.param("(?>a)", "invalid perl operator", id="atomic"),
        pytest.param(r"\C", "invalid escape sequence", id="one byte"),
        pytest.param(r"[\p{Xx}]", "invalid character class range", id="no category"),
        pytest.param("a)", "unexpected", id="a group that was not opened"),
        pytest.param("*a", "no argument for repetition", id="nothing to repeat"),
        pytest.param("a|*", "no argument for repetition", id="nothing to repeat in a choice"),
        pytest.param("a{2,1}", "invalid repetition size", id="from two to one"),
        pytest.param("a{1001}", "invalid repetition size", id="a thousand and one"),
        pytest.param("a{" + "9" * 1500 + "}", "repeat count", id="very often"),
        pytest.param("(a{1000}){1000}", "invalid repetition size", id="a thousand thousand"),
        pytest.param(r"(\p{L}|\p{N}){1000}", "too large", id="more memory than a pattern may have"),
        pytest.param("[z-a]", "invalid character class range", id="a range backwards"),
        pytest.param("(?z)a", "invalid perl operator", id="an unknown flag"),
        pytest.param("[a", "missing", id="open class"),
        pytest.param("(a", "missing", id="open group"),
        pytest.param("a\\", "trailing", id="trailing backslash"),
        pytest.param("[[:moon:]]", "invalid character class", id="no such class"),
        pytest.param("a" * 3000, "longer", id="too long"),
    ],
)
def test_a_pattern_that_go_would_not_compile_is_rejected(pattern, why):
    with pytest.raises(BadPattern, match=why):
        compile_pattern(pattern)


def expressions() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", r"\B", r"\w", "", "(?:a|b)", "_"])

    def larger(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        repeated = st.builds("(?:{}){}".format, part, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"]))
        return repeated | st.builds("(?:{}|{})".format, part, part) | st.builds("{}{}".format, part, part)

    return st.recursive(atoms, larger, max_leaves=6)


@given(expressions(), st.text("ab_ \n", min_size=1, max_size=6))
def test_a_pattern_matches_as_pythons_re_does(pattern, text):
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


def test_a_search_with_a_too_long_worst_case_is_not_started():
    search = compile_pattern("a[ab]{900}c")
    noise = random.Random(1)
    begun = time.process_time()
    with pytest.raises(TooCostly):
        search("".join(noise.choice("ab") for _ in range(200_000)))
    assert time.process_time() - begun < 1


def test_all_searches_of_one_object_share_one_budget():
    search = compile_pattern("a[ab]{400}c")
    noise = random.Random(1)
    text = "".join(noise.choice("ab") for _ in range(4_000))
    with pytest.raises(TooCostly), metered(0.05):
        _ = [search(text) for _ in range(1_000)]
    assert not search(text)


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "😀"])
def test_any_text_can_be_searched(text):
    assert compile_pattern("^.*$")(text)


def test_deep_groups_are_matched_without_recursion():
    assert compile_pattern("(" * 500 + "a" + ")" * 500)("a")


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
        (r"^\p{Greek}+$", "αβ", "a"),
        (r"^(?i)\p{Lu}$", "é", "1"),
        (r"^\Qa.b\E$", "a.b", "axb"),
    ],
)
def test_unicode_categories_scripts_and_quoted_text_are_known(pattern, yes, no):
    search = compile_pattern(pattern)
    assert search(yes)
    assert not search(no)
