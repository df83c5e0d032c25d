"""Netlink's bytes."""

from hypothesis import given
from hypothesis import strategies as st

from podwire.linux.net import wire

KINDS = st.integers(1, 0x3FFF)


@given(st.lists(st.tuples(KINDS, st.binary(max_size=40))))
def test_attributes_are_read_as_they_were_written(pairs):
    packed = b"".join(wire.attribute(kind, value) for kind, value in pairs)
    assert list(wire.iter_attributes(packed)) == pairs
    assert len(packed) % 4 == 0


@given(KINDS, st.lists(st.tuples(KINDS, st.binary(max_size=9)), max_size=4))
def test_a_nest_holds_its_attributes(kind, pairs):
    packed = wire.nested(kind, *(wire.attribute(*pair) for pair in pairs))
    ((found, inner),) = wire.iter_attributes(packed)
    assert (found, list(wire.iter_attributes(inner))) == (kind, pairs)


@given(st.binary(max_size=60))
def test_parser_accepts_any_bytes(data):
    assert len(list(wire.iter_attributes(data))) <= len(data)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_text_ends_at_its_zero(text):
    packed = wire.text(3, text)
    assert wire.string(wire.attributes(packed)[3]) == text


def test_numbers_have_the_order_of_their_side():
    assert wire.number(wire.attributes(wire.u32(1, 0x01020304))[1]) == 0x01020304
    assert wire.number(wire.attributes(wire.u16(1, 0x0102))[1]) == 0x0102
    assert wire.number(wire.attributes(wire.u8(1, 7))[1]) == 7
    assert wire.big(b"\1\2") == 0x0102
    assert (wire.number(None), wire.number(None, 5), wire.big(None)) == (0, 5, 0)
