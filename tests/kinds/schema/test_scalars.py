"""Times, bytes and numbers, one by one."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.schema import scalars
from podwire.kinds.shape import Report, TypeMismatch


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-11-15T03:44:00Z", "2026-11-15T03:44:00Z"),
        ("2026-11-15T03:44:00.999Z", "2026-11-15T03:44:00Z"),
        ("2026-11-15T03:44:00+02:00", "2026-11-15T01:44:00Z"),
        ("2026-01-01T00:30:00-01:30", "2026-01-01T02:00:00Z"),
        ("0900-01-01T00:00:00+00:00", "0900-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_a_time_is_normalized_to_utc_and_whole_seconds(given, kept):
    assert scalars.TIME.decode(given, "", Report()) == kept


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-11-15T03:44:00.123456Z", "2026-11-15T03:44:00.123456Z"),
        ("2026-11-15T03:44:00.000000+02:00", "2026-11-15T01:44:00.000000Z"),
        ("0001-01-01T00:00:00.000000Z", None),
    ],
)
def test_a_micro_time_keeps_six_decimals(given, kept):
    assert scalars.MICRO_TIME.decode(given, "", Report()) == kept


_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO = "2006-01-02T15:04:05.000000Z07:00"


@pytest.mark.parametrize(
    ("shape", "given", "text"),
    [
        (scalars.TIME, "now", f'parsing time "now" as "{_LAYOUT}": cannot parse "now" as "2006"'),
        (scalars.TIME, "2026-1-1", f'parsing time "2026-1-1" as "{_LAYOUT}": cannot parse "1-1" as "01"'),
        (
            scalars.TIME,
            "2026-01-01T00:00:00",
            f'parsing time "2026-01-01T00:00:00" as "{_LAYOUT}": cannot parse "" as "Z07:00"',
        ),
        (scalars.TIME, "2026-13-01T00:00:00Z", 'parsing time "2026-13-01T00:00:00Z": month out of range'),
        (scalars.TIME, "2026-02-30T00:00:00Z", 'parsing time "2026-02-30T00:00:00Z": day out of range'),
        (scalars.TIME, "2026-02-01T00:00:60Z", 'parsing time "2026-02-01T00:00:60Z": second out of range'),
        (scalars.TIME, "2026-02-01T00:00:00Z!", 'parsing time "2026-02-01T00:00:00Z!": extra text: "!"'),
        (
            scalars.MICRO_TIME,
            "2026-01-01T00:00:00Z",
            f'parsing time "2026-01-01T00:00:00Z" as "{_MICRO}": cannot parse "Z" as ".000000"',
        ),
        (scalars.BYTES, "YWJ", "illegal base64 data at input byte 0"),
        (scalars.BYTES, "YWJjZA", "illegal base64 data at input byte 4"),
        (scalars.BYTES, "YW!j", "illegal base64 data at input byte 2"),
        (scalars.BYTES, "YQ=a", "illegal base64 data at input byte 2"),
        (scalars.BYTES, "YQ==YQ==", "illegal base64 data at input byte 4"),
        (scalars.BYTES, "ä", "illegal base64 data at input byte 0"),
    ],
)
def test_an_unparsable_time_is_reported_with_gos_message(shape, given, text):
    with pytest.raises(TypeMismatch) as refused:
        shape.decode(given, "", Report())
    assert str(refused.value) == text


@given(
    st.text(max_size=30) | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?(Z|[+-]\d\d:\d\d)", fullmatch=True)
)
def test_any_text_is_a_time_or_a_type_mismatch(text):
    for shape in (scalars.TIME, scalars.MICRO_TIME):
        try:
            once = shape.decode(text, "", Report())
        except TypeMismatch:
            continue
        assert once is None or shape.decode(once, "", Report()) == once


@given(st.binary(max_size=50))
def test_bytes_keep_their_content(content):
    text = base64.encodebytes(content).decode()
    assert scalars.BYTES.decode(text, "", Report()) == base64.b64encode(content).decode()


@given(st.text(alphabet="aZ0+/=\n!", max_size=12))
def test_any_text_is_base64_or_a_type_mismatch(text):
    try:
        once = scalars.BYTES.decode(text, "", Report())
    except TypeMismatch:
        return
    assert scalars.BYTES.decode(once, "", Report()) == once


@pytest.mark.parametrize(("given", "kept"), [(1, 1), (1.5, 1.5), (10.0, 10), (-0.0, 0)])
def test_a_whole_float_is_shown_without_a_fraction(given, kept):
    out = scalars.NUMBER.decode(given, "", Report())
    assert (out, type(out)) == (kept, type(kept))
