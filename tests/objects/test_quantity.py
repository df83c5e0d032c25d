"""Quantities are exact and show themselves in one form only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects.quantity import Format, Quantity, parse


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("0", "0", id="zero"),
        pytest.param("0Ki", "0", id="zero with a suffix"),
        pytest.param("-0", "0", id="negative zero"),
        pytest.param("1", "1", id="one"),
        pytest.param("1000", "1k", id="a thousand"),
        pytest.param("1500", "1500", id="no fraction for a suffix"),
        pytest.param("1.5", "1500m", id="a fraction becomes thousandths"),
        pytest.param("0.5", "500m", id="a half"),
        pytest.param(".5", "500m", id="no leading zero"),
        pytest.param("5.", "5", id="no decimals"),
        pytest.param("+12", "12", id="plus"),
        pytest.param("-1.5", "-1500m", id="negative"),
        pytest.param("0.000000001", "1n", id="a nano"),
        pytest.param("0.0000000001", "1n", id="below a nano rounds up"),
        pytest.param("-0.0000000001", "-1n", id="below a nano rounds away from zero"),
        pytest.param("1000m", "1", id="thousand thousandths"),
        pytest.param("100u", "100u", id="micro"),
        pytest.param("1000000000000000000", "1E", id="exa"),
        pytest.param("1000E", "1000E", id="nothing above exa"),
        pytest.param("1Ki", "1Ki", id="binary"),
        pytest.param("1024Mi", "1Gi", id="binary rises"),
        pytest.param("1.5Gi", "1536Mi", id="binary fraction"),
        pytest.param("0.5Ki", "512", id="small binary is plain"),
        pytest.param(".001Ki", "1024m", id="tiny binary is decimal"),
        pytest.param(".000000000001Ki", "2n", id="tiny binary rounds up"),
        pytest.param("1025", "1025", id="plain number stays decimal"),
        pytest.param("8Ei", "9223372036854775807", id="binary is capped"),
        pytest.param("1e3", "1e3", id="exponent"),
        pytest.param("1E3", "1e3", id="large E with digits is an exponent"),
        pytest.param("100e1", "1e3", id="exponent by three"),
        pytest.param("1e0", "1", id="exponent zero"),
        pytest.param("12e-3", "12e-3", id="negative exponent"),
        pytest.param("1e-20", "1e-9", id="exponent below nano"),
        pytest.param("1e100", "10e99", id="exponent beyond the suffixes"),
        pytest.param("3E", "3E", id="E alone is exa"),
        pytest.param(" 2 ", "2", id="blanks around"),
    ],
)
def test_a_quantity_shows_its_canonical_form(text, canonical):
    assert parse(text).canonical() == canonical
    assert Quantity.parse(canonical).canonical() == canonical


FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", FORM, id="empty"),
        pytest.param("abc", FORM, id="letters"),
        pytest.param("1 Gi", FORM, id="blank within"),
        pytest.param("--1", FORM, id="two signs"),
        pytest.param("Ki", FORM, id="suffix alone"),
        pytest.param("1.2.3", "unable to parse numeric part of quantity", id="two points"),
        pytest.param(".", "unable to parse numeric part of quantity", id="point alone"),
        pytest.param("9" * 5000, "unable to parse numeric part of quantity", id="endless digits"),
        pytest.param("1ki", "unable to parse quantity's suffix", id="unknown suffix"),
        pytest.param("1e", "unable to parse quantity's suffix", id="exponent without digits"),
        pytest.param("1e999999999", "unable to parse quantity's suffix", id="exponent to keep us busy"),
    ],
)
def test_an_invalid_quantity_is_rejected_with_upstreams_text(text, message):
    with pytest.raises(ValueError) as refused:
        parse(text)
    assert str(refused.value) == message


def test_a_huge_negative_exponent_costs_nothing_and_rounds_up():
    assert parse("1e-999999999").nano == 1


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        pytest.param("1", 1, 1000, id="whole"),
        pytest.param("100m", 1, 100, id="value rounds up"),
        pytest.param("-100m", -1, -100, id="away from zero"),
        pytest.param("1n", 1, 1, id="a nano is something"),
        pytest.param("1Ki", 1024, 1024000, id="binary"),
        pytest.param("0", 0, 0, id="nothing"),
    ],
)
def test_whole_and_thousandths(text, value, milli):
    assert (parse(text).value(), parse(text).milli()) == (value, milli)


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [
        pytest.param("1Gi", "512Mi", "1536Mi", id="binary"),
        pytest.param("1", "500m", "1500m", id="decimal"),
        pytest.param("0", "1Gi", "1Gi", id="zero takes the other's family"),
        pytest.param("1Gi", "1", "1073741825", id="keeps its family"),
    ],
)
def test_a_sum_keeps_the_family_of_its_first_part(left, right, total):
    assert (parse(left) + parse(right)).canonical() == total


def test_quantities_compare_by_amount():
    assert parse("1000m") == parse("1") == parse("1e0")
    assert hash(parse("1000m")) == hash(parse("1"))
    assert parse("1Ki") > parse("1k") > parse("999")
    assert parse("1") != "1"
    assert not parse("0")
    assert str(-parse("2k")) == "-2k"
    assert repr(parse("2")) == "Quantity('2')"


quantities = st.builds(
    Quantity,
    st.one_of(
        st.integers(min_value=-(10**30), max_value=10**30),
        st.integers(min_value=-(2**40), max_value=2**40).map(lambda whole: whole * 10**9),
    ),
    st.sampled_from([Format.DECIMAL_SI, Format.DECIMAL_EXPONENT]),
)
binary = st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1).map(
    lambda whole: Quantity(whole * 10**9, Format.BINARY_SI)
)


@given(quantities | binary)
def test_the_canonical_form_loses_nothing(quantity):
    assert parse(quantity.canonical()) == quantity


@given(quantities)
def test_the_canonical_form_is_final(quantity):
    assert parse(quantity.canonical()).canonical() == quantity.canonical()


def test_a_binary_number_without_binary_factors_is_plain_and_then_decimal():
    assert Quantity(125000 * 10**9, Format.BINARY_SI).canonical() == "125000"
    assert parse("125000").canonical() == "125k"


@given(quantities, quantities)
def test_sums_and_differences_undo_each_other(left, right):
    assert left + right - right == left
    assert left - left == Quantity(0)


@given(quantities)
def test_value_is_the_nearest_whole_number_away_from_zero(quantity):
    assert abs(quantity.value()) * 10**9 >= abs(quantity.nano) > (abs(quantity.value()) - 1) * 10**9
