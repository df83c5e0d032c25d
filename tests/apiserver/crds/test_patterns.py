"""Patterns that are written for RE2."""

import warnings

import pytest

from podwire.apiserver.crds.patterns import BadPattern, compile_pattern


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
        pytest.param(r"\p{Greek}", r"\\p", id="unicode classes"),
        pytest.param("a(?i)b", "at the start", id="flags in the middle"),
        pytest.param("[a", "missing", id="open class"),
        pytest.param("(a", "missing", id="open group"),
        pytest.param("a\\", "not supported", id="trailing backslash"),
        pytest.param("[[:moon:]]", "invalid character class", id="no such class"),
        pytest.param("a" * 3000, "longer", id="too long"),
    ],
)
def test_what_python_would_read_otherwise_is_refused(pattern, why):
    with pytest.raises(BadPattern, match=why):
        compile_pattern(pattern)
