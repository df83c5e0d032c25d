"""Frames and bytes: any cut, any length, and what is too long is passed over."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.ttrpc import wire
from podwire.protocols.ttrpc.wire import Frame, Frames, encode

FRAMES = st.lists(
    st.builds(
        Frame,
        stream=st.integers(0, wire.MAX_STREAM),
        kind=st.integers(0, 255),
        flags=st.integers(0, 255),
        data=st.binary(max_size=40),
    ),
    max_size=8,
)


def encoded(frames):
    return b"".join(encode(frame.stream, frame.kind, frame.data, frame.flags) for frame in frames)


def chunks(data, cuts):
    """The data, cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)] or [data]


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        pytest.param(Frame(1, wire.REQUEST, 0, b"ab"), "00000002 00000001 01 00 6162", id="a request"),
        pytest.param(Frame(0xFFFFFFFF, wire.RESPONSE, 0, b""), "00000000 ffffffff 02 00", id="an empty answer"),
        pytest.param(Frame(3, wire.DATA, 5, b""), "00000000 00000003 03 05", id="the end of a stream of data"),
    ],
)
def test_a_frame_is_ten_bytes_and_its_data(frame, data):
    assert encoded([frame]) == bytes.fromhex(data)
    assert list(Frames().feed(bytes.fromhex(data))) == [frame]


@given(FRAMES, st.lists(st.integers(0, 1000), max_size=20))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(frames, cuts):
    reader = Frames()
    assert [item for chunk in chunks(encoded(frames), cuts) for item in reader.feed(chunk)] == frames
    assert reader.idle


@given(FRAMES, FRAMES, st.integers(1, 300), st.lists(st.integers(0, 1000), max_size=20))
def test_an_oversized_frame_is_reported_and_the_next_ones_are_read(before, after, over, cuts):
    limit = wire.MAX_DATA
    wire.MAX_DATA = 40
    try:
        long = wire.HEADER.pack(40 + over, 7, wire.REQUEST, 0) + b"\x01" * (40 + over)
        reader = Frames()
        data = encoded(before) + long + encoded(after)
        found = [item for chunk in chunks(data, cuts) for item in reader.feed(chunk)]
    finally:
        wire.MAX_DATA = limit
    assert found == [*before, Frame(7, wire.REQUEST, 0, b"", oversize=40 + over), *after]
    assert reader.idle


@pytest.mark.parametrize(
    ("data", "idle"),
    [
        pytest.param(b"", True, id="nothing"),
        pytest.param(b"\0" * 9, False, id="a part of a header"),
        pytest.param(b"\0\0\0\1" + b"\0" * 6, False, id="a header without its data"),
        pytest.param(b"\0" * 10, True, id="a whole frame"),
        pytest.param(b"\xff" * 10 + b"x" * 100, False, id="a part of what is passed over"),
    ],
)
def test_a_reader_knows_whether_it_is_in_the_middle_of_a_frame(data, idle):
    reader = Frames()
    list(reader.feed(data))
    assert reader.idle is idle


def test_oversized_frames_are_not_encoded():
    assert len(encode(1, wire.REQUEST, b"a" * wire.MAX_DATA)) == wire.MAX_DATA + 10
    with pytest.raises(ValueError, match="4194305 bytes of data, and a frame holds 4194304"):
        encode(1, wire.REQUEST, b"a" * (wire.MAX_DATA + 1))


def test_the_data_of_an_oversized_frame_is_not_buffered():
    reader = Frames()
    assert [item.oversize for item in reader.feed(b"\xff\xff\xff\xff" + b"\0" * 6)] == [0xFFFFFFFF]
    for _ in range(64):
        assert list(reader.feed(b"\xff" * (1 << 20))) == []
    assert len(reader._buffer) == 0
