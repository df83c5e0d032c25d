"""Bytes of all sorts: nothing but BadMux is raised, little is kept, and damage stays where it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.ttrpc import mux, wire
from podwire.protocols.ttrpc.mux import BadMux, Pieces
from podwire.protocols.ttrpc.sides import Answered, Answering, Asked, Asking, answer

KINDS = st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4, 255])
HEADERS = st.builds(
    wire.HEADER.pack,
    st.one_of(st.integers(0, 64), st.just(wire.MAX_DATA), st.integers(0, 0xFFFFFFFF)),
    st.one_of(st.integers(0, 12), st.integers(0, 0xFFFFFFFF)),
    KINDS,
    st.integers(0, 255),
)
SHREDS = st.lists(st.one_of(st.binary(max_size=64), HEADERS), max_size=20).map(b"".join)
STREAMS = st.one_of(
    st.binary(max_size=400),
    st.lists(st.tuples(st.integers(0, 3), SHREDS), max_size=10).map(
        lambda listed: b"".join(mux.HEADER.pack(number, len(data)) + data for number, data in listed)
    ),
)


class Side:
    """All of one side that does no I/O, as a trunk puts it together."""

    def __init__(self):
        self.pieces = Pieces()
        self.frames = {1: wire.Frames(), 2: wire.Frames()}
        self.answering, self.asking = Answering(), Asking()
        for _ in range(3):
            self.asking.request("s", "m", b"")

    def feed(self, chunk):
        for conversation, piece in self.pieces.feed(chunk):
            if (frames := self.frames.get(conversation)) is None:
                continue
            side = self.answering if conversation == 1 else self.asking
            yield from (side.receive(frame) for frame in frames.feed(piece))

    @property
    def kept(self):
        return len(self.pieces._buffer) + sum(len(frame._buffer) for frame in self.frames.values())


@given(st.lists(STREAMS, max_size=5))
def test_any_bytes_end_in_nothing_worse_than_a_bad_mux_and_no_more_is_kept_than_came(chunks):
    side = Side()
    try:
        for chunk in chunks:
            list(side.feed(chunk))
    except BadMux:
        pass
    assert side.kept <= sum(map(len, chunks))


@pytest.mark.parametrize("first", [b"\xff" * 10, wire.HEADER.pack(wire.MAX_DATA, 1, 1, 0)], ids=["no end", "longest"])
def test_the_buffer_of_an_endless_stream_is_bounded(first):
    side = Side()
    list(side.feed(mux.HEADER.pack(1, len(first)) + first))
    chunk = mux.HEADER.pack(1, 1 << 20) + b"\xff" * (1 << 20)
    for _ in range(20):
        list(side.feed(chunk))
        assert side.kept <= wire.MAX_DATA + (2 << 20)


def conversation():
    """Requests on streams 1, 3, 5, 7 of conversation 1, and answers to 1, 3, 5 in conversation 2."""
    asking = Asking()
    requests = [asking.request("s", "m", b"payload")[1] for _ in range(4)]
    return requests, [answer(stream, b"ok") for stream in (1, 3, 5)]


@given(st.data())
def test_damage_within_a_frames_data_stays_in_that_frame_and_that_conversation(data):
    requests, answers = conversation()
    hurt = data.draw(st.integers(0, 3))
    frame = bytearray(requests[hurt])
    for at in data.draw(st.lists(st.integers(wire.HEADER.size, len(frame) - 1), min_size=1, max_size=5)):
        frame[at] = data.draw(st.integers(0, 255))
    requests[hurt] = bytes(frame)
    order = [(1, request) for request in requests], [(2, answer) for answer in answers]
    stream = b"".join(mux.pieces(number, each) for pair in zip(*order, strict=False) for number, each in pair)
    stream += mux.pieces(1, requests[3])
    results = list(Side().feed(stream))
    assert [result.stream for result in results if isinstance(result, Answered)] == [1, 3, 5]
    heard = {result.stream for result in results if isinstance(result, Asked)}
    assert heard | {2 * hurt + 1} == {1, 3, 5, 7}


@given(st.binary(min_size=1, max_size=200), st.data())
def test_noise_in_one_conversation_leaves_the_other_alone(noise, data):
    _, answers = conversation()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(noise)), min_size=2, max_size=2)))
    parts = noise[: cuts[0]], noise[cuts[0] : cuts[1]], noise[cuts[1] :]
    stream = b"".join(
        mux.HEADER.pack(1, len(part)) + part + mux.pieces(2, each) for part, each in zip(parts, answers, strict=True)
    )
    results = list(Side().feed(stream))
    assert [result.stream for result in results if isinstance(result, Answered)] == [1, 3, 5]


@given(STREAMS, st.lists(st.integers(0, 500), max_size=12))
def test_the_same_bytes_mean_the_same_in_any_cut(data, cuts):
    def meaning(chunks):
        side, found = Side(), []
        try:
            for chunk in chunks:
                found += [repr(item) for item in side.feed(chunk)]
        except BadMux as error:
            return str(error)
        return found

    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    cut = [data[start:end] for start, end in zip(places, [*places[1:], len(data)], strict=True)]
    assert meaning(cut) == meaning([data])
