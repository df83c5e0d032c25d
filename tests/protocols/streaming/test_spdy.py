"""SPDY/3.1 frames, held against the specification's own layout."""

import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.spdy import DICTIONARY, Connection, Data, GoAway, Opened, Ping, Reset, SpdyError, Why

RESET = bytes.fromhex("80030003 00 000008 00000005 00000003")
SETTINGS = bytes.fromhex("80030004 00 000004 00000000")
PING = bytes.fromhex("80030006 00 000004 00000002")
GOAWAY = bytes.fromhex("80030007 00 000008 00000001 00000000")
WINDOW = bytes.fromhex("80030009 00 000008 00000001 00001000")


def block(headers: dict[str, str], deflate: "zlib._Compress | None" = None) -> bytes:
    """Headers as a peer writes them, with the dictionary or without."""
    deflate = deflate or zlib.compressobj(zdict=DICTIONARY)
    words = [item.encode() for pair in headers.items() for item in pair]
    plain = struct.pack("!I", len(headers)) + b"".join(struct.pack("!I", len(word)) + word for word in words)
    return deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)


def syn_stream(stream: int, content: bytes, flags: int = 0) -> bytes:
    payload = struct.pack("!IIH", stream, 0, 0) + content
    return struct.pack("!HHI", 0x8003, 1, flags << 24 | len(payload)) + payload


def syn_reply(stream: int, content: bytes) -> bytes:
    return struct.pack("!HHII", 0x8003, 2, 4 + len(content), stream) + content


def test_the_dictionary_is_the_one_that_everybody_has():
    """Its checksum stands in the first bytes of every connection's headers."""
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)
    assert block({})[:6].hex() == "78bbe3c6a7c2"


def test_streams_are_opened_with_headers_of_one_compressor():
    client, server = Connection(), Connection()
    for stream, kind in ((1, "error"), (3, "stdin")):
        frame = client.open(stream, {"streamType": kind, "Empty": ""})
        version, type_, length = struct.unpack("!HHI", frame[:8])
        assert (version, type_, length) == (0x8003, 1, len(frame) - 8)
        assert struct.unpack("!IIH", frame[8:18]) == (stream, 0, 0)
        assert list(server.feed(frame)) == [Opened(stream, {"streamtype": kind, "empty": ""})]
        assert list(client.feed(server.reply(stream))) == []


def test_a_peer_may_do_without_the_dictionary():
    deflate = zlib.compressobj()
    frames = syn_stream(1, block({"a": "b"}, deflate)) + syn_stream(3, block({"c": "d"}, deflate), flags=1)
    assert list(Connection().feed(frames)) == [Opened(1, {"a": "b"}), Opened(3, {"c": "d"}, end=True)]


@pytest.mark.parametrize(
    ("frame", "event"),
    [
        (bytes.fromhex("00000003 00 000002 6869"), Data(3, b"hi", end=False)),
        (bytes.fromhex("00000003 01 000002 6869"), Data(3, b"hi", end=True)),
        (bytes.fromhex("00000003 01 000000"), Data(3, b"", end=True)),
        (RESET, Reset(5)),
        (PING, Ping(PING)),
        (GOAWAY, GoAway()),
        (syn_reply(1, block({})), None),
        (SETTINGS, None),
        (WINDOW, None),
    ],
    ids=["data", "data and end", "end", "reset", "ping", "goaway", "reply", "settings", "window"],
)
def test_frames_of_a_peer_are_parsed(frame, event):
    assert list(Connection().feed(frame)) == ([] if event is None else [event])


def test_frames_are_encoded():
    assert spdy.reset(5, Why.REFUSED_STREAM) == RESET
    assert spdy.go_away(1) == GOAWAY
    assert b"".join(spdy.data(3, b"hi", end=True)) == bytes.fromhex("00000003 00000002 6869 00000003 01000000")


@given(st.lists(st.integers(1, 20)), st.binary(max_size=50))
def test_frames_may_come_in_any_pieces(sizes, content):
    whole = b"".join([syn_reply(1, block({})), *spdy.data(7, content, end=True), PING])
    client, found = Connection(), []
    for size in [*sizes, len(whole)]:
        found += client.feed(whole[:size])
        whole = whole[size:]
    *pieces, end, ping = found
    assert b"".join(piece.data for piece in pieces) == content
    assert not any(piece.end or piece.stream != 7 for piece in pieces)
    assert (end, ping) == (Data(7, b"", end=True), Ping(PING))


def test_much_data_is_several_frames_and_none_is_waited_for():
    content = bytes(0xFFFFFF + 5)
    frames = list(spdy.data(1, content))
    assert [len(frame) - 8 for frame in frames] == [0xFFFFFF, 5]
    assert list(Connection().feed(frames[0][:1000])) == [Data(1, bytes(992), end=False)]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_an_error_or_incomplete(rubbish):
    with contextlib.suppress(SpdyError):
        list(Connection().feed(rubbish))


@given(st.binary(max_size=100), st.integers(0, 255))
def test_arbitrary_header_bytes_are_an_error(rubbish, flags):
    with contextlib.suppress(SpdyError):
        list(Connection().feed(syn_stream(1, rubbish, flags)))


BOMB = zlib.compressobj(9, zdict=DICTIONARY)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (bytes.fromhex("8002000100000000"), "another version"),
        (bytes.fromhex("8003000300000000"), "type 3 with 0 bytes"),
        (bytes.fromhex("8003000600000001ff"), "type 6 with 1 bytes"),
        (bytes.fromhex("8003000100ffffff"), "type 1 with 16777215 bytes"),
        (syn_stream(1, b"\xff\xff"), "cannot be inflated"),
        (syn_stream(1, BOMB.compress(bytes(10_000_000)) + BOMB.flush(zlib.Z_SYNC_FLUSH)), "more than 65536 bytes"),
        (syn_stream(1, zlib.compress(bytes(4))), "after the end of all headers"),
        (syn_stream(1, b""), "cannot be read"),
    ],
    ids=["version", "short reset", "short ping", "huge", "inflate", "bomb", "end", "empty"],
)
def test_frames_that_violate_the_protocol_are_rejected(frame, why):
    with pytest.raises(SpdyError, match=why):
        list(Connection().feed(frame))


@pytest.mark.parametrize("plain", ["00000001", "00000001 00000001 61 000000ff 62", "00000002 00000001 61 00000001 62"])
def test_blocks_that_are_not_headers(plain):
    deflate = zlib.compressobj(zdict=DICTIONARY)
    content = deflate.compress(bytes.fromhex(plain)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(SpdyError, match="headers"):
        list(Connection().feed(syn_stream(1, content)))
