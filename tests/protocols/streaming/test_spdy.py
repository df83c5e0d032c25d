"""SPDY/3.1 frames, held against the specification's own layout."""

import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.spdy import Client, Data, GoAway, Ping, Reset, SpdyError

SYN_REPLY = bytes.fromhex("80030002 00 000006 00000001 abcd")
RESET = bytes.fromhex("80030003 00 000008 00000005 00000003")
SETTINGS = bytes.fromhex("80030004 00 000004 00000000")
PING = bytes.fromhex("80030006 00 000004 00000002")
GOAWAY = bytes.fromhex("80030007 00 000008 00000001 00000000")


def headers_of(block: bytes) -> dict[str, str]:
    """As a peer reads them."""
    [count] = struct.unpack_from("!I", block)
    texts, at = [], 4
    for _ in range(2 * count):
        [length] = struct.unpack_from("!I", block, at)
        texts.append(block[at + 4 : at + 4 + length].decode())
        at += 4 + length
    assert at == len(block)
    return dict(zip(texts[::2], texts[1::2], strict=True))


def test_streams_are_opened_with_headers_of_one_compressor():
    client, inflate = Client(), zlib.decompressobj()
    for stream, kind in ((1, "error"), (3, "stdin")):
        frame = client.open(stream, {"streamType": kind, "Empty": ""})
        version, type_, length = struct.unpack("!HHI", frame[:8])
        assert (version, type_, length) == (0x8003, 1, len(frame) - 8)
        assert struct.unpack("!IIH", frame[8:18]) == (stream, 0, 0)
        assert headers_of(inflate.decompress(frame[18:])) == {"streamtype": kind, "empty": ""}


@pytest.mark.parametrize(
    ("frame", "event"),
    [
        (bytes.fromhex("00000003 00 000002 6869"), Data(3, b"hi", end=False)),
        (bytes.fromhex("00000003 01 000000"), Data(3, b"", end=True)),
        (RESET, Reset(5)),
        (PING, Ping(PING)),
        (GOAWAY, GoAway()),
        (SYN_REPLY, None),
        (SETTINGS, None),
    ],
    ids=["data", "end", "reset", "ping", "goaway", "reply", "settings"],
)
def test_what_a_peer_says(frame, event):
    assert list(Client().feed(frame)) == ([] if event is None else [event])


@given(st.lists(st.integers(1, 20)), st.binary(max_size=50))
def test_frames_may_come_in_any_pieces(sizes, content):
    whole = b"".join([SYN_REPLY, *spdy.data(7, content, end=True), PING])
    client, found = Client(), []
    for size in [*sizes, len(whole)]:
        found += client.feed(whole[:size])
        whole = whole[size:]
    expected = [Data(7, content, end=False)] if content else []
    assert found == [*expected, Data(7, b"", end=True), Ping(PING)]


def test_much_data_is_several_frames():
    content = bytes(0xFFFFFF + 5)
    assert [len(each) - 8 for each in spdy.data(1, content)] == [0xFFFFFF, 5]


@given(st.binary(max_size=200))
def test_rubbish_is_told_or_waited_for(rubbish):
    with contextlib.suppress(SpdyError):
        list(Client().feed(rubbish))


@pytest.mark.parametrize("frame", ["8002000100000000", "8003000300000000", "8003000600000001ff"])
def test_what_no_peer_may_say(frame):
    with pytest.raises(SpdyError):
        list(Client().feed(bytes.fromhex(frame)))
