"""Queries from untrusted bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.dns.codes import FORMERR, NOTIMP
from podwire.protocols.dns.queries import Edns, Malformed, Query, name_of, read_query, text_of

QUESTION = b"\3wEb\4shop\0\0\1\0\1"
OPT = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0"


def packet(question=QUESTION, rest=b"", flags=0x0100, counts=(1, 0, 0, 0)):
    return struct.pack("!6H", 0x1234, flags, *counts) + question + rest


def test_a_query_is_read_in_lower_case():
    assert read_query(packet()) == Query(0x1234, 0x0100, (b"web", b"shop"), 1, 1, 26, None)


def test_the_size_and_the_flags_of_edns_are_read():
    query = read_query(packet(rest=OPT, counts=(1, 0, 0, 1)))
    assert query.edns == Edns(1232, 0, dnssec_ok=True, bare=True)
    small = read_query(packet(rest=b"\0\0\x29\0\1\0\2\0\0\0\4abcd", counts=(1, 0, 0, 1)))
    assert small.edns == Edns(512, 2, dnssec_ok=False, bare=False)


@pytest.mark.parametrize(
    ("data", "rcode"),
    [
        pytest.param(b"", None, id="nothing"),
        pytest.param(packet()[:11], None, id="half a header"),
        pytest.param(packet(flags=0x8100), None, id="a response"),
        pytest.param(packet(flags=0x2800), NOTIMP, id="an update"),
        pytest.param(packet(flags=0x2000), NOTIMP, id="a notify"),
        pytest.param(packet(counts=(0, 0, 0, 0)), FORMERR, id="no question"),
        pytest.param(packet(counts=(2, 0, 0, 0)), FORMERR, id="two questions"),
        pytest.param(packet(counts=(1, 1, 0, 0)), FORMERR, id="an answer"),
        pytest.param(packet(counts=(1, 0, 0, 1)), FORMERR, id="a missing record"),
        pytest.param(packet(counts=(1, 0, 0, 9)), FORMERR, id="many records"),
        pytest.param(packet(b"\3we"), FORMERR, id="a cut label"),
        pytest.param(packet(b"\3web"), FORMERR, id="a cut name"),
        pytest.param(packet(b"\3web\0\0\1"), FORMERR, id="a cut question"),
        pytest.param(packet(b"\xc0\x0c\0\1\0\1"), FORMERR, id="a pointer to itself"),
        pytest.param(packet(b"\x40" + b"a" * 64 + b"\0\0\1\0\1"), FORMERR, id="a long label"),
        pytest.param(packet((b"\x3f" + b"a" * 63) * 4 + b"\0\0\1\0\1"), FORMERR, id="a long name"),
        pytest.param(packet(rest=b"x"), FORMERR, id="bytes at the end"),
        pytest.param(packet(rest=OPT + OPT, counts=(1, 0, 0, 2)), FORMERR, id="two OPTs"),
        pytest.param(packet(rest=b"\1" + OPT[1:], counts=(1, 0, 0, 1)), FORMERR, id="an OPT with a name"),
        pytest.param(packet(rest=b"\0\0\x01" + OPT[3:], counts=(1, 0, 0, 1)), FORMERR, id="another record"),
        pytest.param(packet(rest=OPT[:-1] + b"\5", counts=(1, 0, 0, 1)), FORMERR, id="cut options"),
    ],
)
def test_a_malformed_packet_has_an_answer_or_none(data, rcode):
    with pytest.raises(Malformed) as caught:
        read_query(data)
    assert caught.value.rcode == rcode


@given(st.binary(max_size=600))
def test_any_bytes_are_a_query_or_malformed(data):
    try:
        query = read_query(data)
    except Malformed:
        return
    assert query.end <= len(data)


@given(st.binary(max_size=40), st.integers(0, 39), st.binary(max_size=4))
def test_a_damaged_query_is_a_query_or_malformed(tail, place, damage):
    data = bytearray(packet(rest=OPT, counts=(1, 0, 0, 1)) + tail[:3])
    data[place : place + len(damage)] = damage
    try:
        read_query(bytes(data))
    except Malformed:
        return


def test_names_of_text():
    assert name_of("Web.Shop.") == (b"web", b"shop")
    assert name_of(".") == name_of("") == ()
    assert text_of((b"a\0b", b"c")) == "a\\000b.c."
    for bad in ("a..b", "x" * 64, ".".join(["a" * 63] * 4), "ü.example"):
        with pytest.raises(ValueError):
            name_of(bad)
