"""Pieces of conversations: what is sent suits peers in Go, what is read may be cut in any way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.ttrpc import mux, wire
from podwire.protocols.ttrpc.mux import BadMux, Pieces, pieces

PIECES = st.lists(st.tuples(st.integers(0, 0xFFFFFFFF), st.binary(max_size=60)), max_size=10)


def encoded(listed):
    return b"".join(mux.HEADER.pack(conversation, len(piece)) + piece for conversation, piece in listed)


@pytest.mark.parametrize(
    ("length", "sizes"),
    [
        pytest.param(0, [10], id="a header alone"),
        pytest.param(4085, [4095], id="one less than fits"),
        pytest.param(4086, [4096], id="just as long as fits"),
        pytest.param(4087, [4096, 1], id="one more than fits"),
        pytest.param(8182, [4096, 4096], id="twice"),
        pytest.param(8183, [4096, 4097], id="the rest is not cut again"),
        pytest.param(100_000, [4096, 95_914], id="long"),
        pytest.param(wire.MAX_DATA, [4096, wire.MAX_DATA + 10 - 4096], id="the longest"),
    ],
)
def test_a_frame_travels_as_go_cuts_it(length, sizes):
    frame = wire.encode(1, wire.REQUEST, b"x" * length)
    found = list(Pieces().feed(pieces(7, frame)))
    assert [(conversation, len(piece)) for conversation, piece in found] == [(7, size) for size in sizes]
    assert b"".join(piece for _, piece in found) == frame


@given(st.integers(0, 20_000))
def test_a_reader_in_go_never_meets_a_piece_that_does_not_fit(length):
    """It reads a piece into what is free: 4096 bytes, or the data that the header announces, whichever is larger."""
    buffered = result = 0
    for _, piece in Pieces().feed(pieces(1, wire.encode(1, wire.REQUEST, b"x" * length))):
        assert len(piece) <= max(4096, result - buffered)
        if not result:
            result, buffered = wire.HEADER.unpack_from(piece)[0], -wire.HEADER.size
        buffered += len(piece)
    assert buffered == length


@given(PIECES, st.lists(st.integers(0, 2000), max_size=20))
def test_pieces_come_out_as_they_went_in_however_the_bytes_are_cut(listed, cuts):
    data, reader, found = encoded(listed), Pieces(), []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in zip(places, [*places[1:], len(data)], strict=True):
        found += reader.feed(data[start:end])
    assert found == listed
    assert reader.idle


def test_the_longest_piece_is_a_whole_frame_and_a_longer_one_ends_everything():
    whole = mux.HEADER.pack(1, wire.MAX_DATA + 10) + b"x" * (wire.MAX_DATA + 10)
    [(_, piece)] = Pieces().feed(whole)
    assert len(piece) == wire.MAX_DATA + 10
    with pytest.raises(BadMux, match="a piece of 4194315 bytes for conversation 1; at most 4194314 fit"):
        list(Pieces().feed(mux.HEADER.pack(1, wire.MAX_DATA + 11)))


def test_frames_before_an_invalid_header_are_read():
    reader, found = Pieces(), []
    with pytest.raises(BadMux):
        found.extend(reader.feed(encoded([(1, b"a"), (2, b"b")]) + b"\xff" * 8))
    assert found == [(1, b"a"), (2, b"b")]


@pytest.mark.parametrize("data", [b"\0\0\0\1", encoded([(1, b"abc")])[:-1]], ids=["a part of a header", "no end"])
def test_a_reader_knows_whether_it_is_in_the_middle_of_a_piece(data):
    reader = Pieces()
    assert list(reader.feed(data)) == []
    assert not reader.idle
