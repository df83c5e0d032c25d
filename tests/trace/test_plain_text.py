"""Text of strangers: one line, nothing that acts, nothing lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.trace.canvas import FAILED, Canvas
from podwire.trace.plain_text import cut, folded, plain, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("web-1", "web-1", id="ordinary"),
        pytest.param("\x1b[2J\x1b]0;x\x07", "\\x1b[2J\\x1b]0;x\\x07", id="escape sequences"),
        pytest.param("a\nb\tc\rd", "a\\nb\\tc\\rd", id="lines"),
        pytest.param("\u202egnp.exe", "\\u202egnp.exe", id="right to left override"),
        pytest.param("a\u200bb\ufeff", "a\\u200bb\\ufeff", id="nothing to see"),
        pytest.param("\x9b31m", "\\x9b31m", id="the one byte that begins a sequence"),
        pytest.param("\U000e0041", "\\U000e0041", id="tags"),
        pytest.param("Größe שלום 网络", "Größe שלום 网络", id="other people's letters"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert plain(text) == shown


@given(st.text())
def test_plain_text_is_printable_and_two_texts_stay_two(text):
    assert plain(text).isprintable()
    assert plain(plain(text)) == plain(text)


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_cut_text_fits(text, most):
    shown = cut(plain(text), most)
    assert width(shown) <= most
    assert shown == plain(text) or shown.endswith("…")


@given(st.text(), st.integers(min_value=2, max_value=40))
def test_folded_text_fits_and_is_complete(text, most):
    shown = plain(text)
    lines = folded(shown, most)
    assert all(width(line) <= most for line in lines)
    assert "".join(lines).replace(" ", "") == shown.replace(" ", "")


def test_lines_break_at_spaces_where_there_are_some():
    assert folded("GET /api/v1/pods of all", 10) == ["GET", "/api/v1/po", "ds of all"]


@given(st.text(max_size=30), st.integers(min_value=-5, max_value=25))
def test_a_canvas_is_never_wider_than_it_is(text, column):
    drawn = Canvas(20)
    drawn.put(column, plain(text))
    assert width(str(drawn)) <= 20


def test_wide_letters_take_two_columns_and_accents_none():
    drawn = Canvas(10)
    drawn.put(0, "网络|e\u0301|")
    assert str(drawn) == "网络|e\u0301|"
    assert width(str(drawn)) == 7


def test_colours_are_for_terminals_alone():
    plain_, coloured = Canvas(9), Canvas(9, colours=True)
    for item in (plain_, coloured):
        item.put(0, "no ")
        item.put(3, "way", FAILED)
    assert str(plain_) == "no way"
    assert str(coloured) == f"no \x1b[{FAILED}mway\x1b[0m"
