"""The client's side of SPDY/3.1, as far as kubelets and runtimes use it: streams with headers, data, an end each way.

    control frame   1 | version 3 (15 bits) | type (16) | flags (8) | length (24) | payload
    data frame      0 | stream (31 bits)                | flags (8) | length (24) | data

Headers are deflated, by one compressor for the whole connection. The specification's preset dictionary is not needed:
a stream that was made without one says so. What the peer says in headers of its own is not read; it says nothing there.
There is no flow control, as these peers have none.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PROTOCOL = "SPDY/3.1"

_CONTROL = 0x80030000
_SYN_STREAM, _RST_STREAM, _PING, _GOAWAY = 1, 3, 6, 7
_FIN = 1
_HEAD = struct.Struct("!II")
_WORD = struct.Struct("!I")
_SYN = struct.Struct("!IIH")
_STREAM = 0x7FFFFFFF
_LENGTH = 0xFFFFFF


class SpdyError(Exception):
    """The peer sent what the protocol does not have; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes on a stream; with `end`, the last ones."""

    stream: int
    data: bytes
    end: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """The peer gives a stream up."""

    stream: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Wants `answer` back."""

    answer: bytes


@dataclass(frozen=True, slots=True)
class GoAway:
    """The peer takes no more streams: it is about to close."""


Event = Data | Reset | Ping | GoAway


class Client:
    """One connection, without the socket: what is to be sent is given, what has come is fed."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj()
        self._received = bytearray()

    def open(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Open a stream. A client's numbers are odd, and each is greater than the one before."""
        pairs = [_WORD.pack(len(headers))]
        for name, value in headers.items():
            pairs += [_text(name.lower()), _text(value)]
        block = self._deflate.compress(b"".join(pairs)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        payload = _SYN.pack(stream, 0, 0) + block
        return _HEAD.pack(_CONTROL | _SYN_STREAM, len(payload)) + payload

    def feed(self, data: bytes) -> Iterator[Event]:
        """What the bytes that have come complete. Raises SpdyError."""
        self._received += data
        while len(self._received) >= _HEAD.size:
            first, second = _HEAD.unpack_from(self._received)
            end = _HEAD.size + (second & _LENGTH)
            if len(self._received) < end:
                return
            frame = bytes(self._received[:end])
            del self._received[:end]
            event = _event(first, second >> 24, frame)
            if event is not None:
                yield event


def data(stream: int, content: bytes, *, end: bool = False) -> Iterator[bytes]:
    """The frames that carry these bytes; with `end`, nothing follows on this stream."""
    for start in range(0, len(content), _LENGTH):
        part = content[start : start + _LENGTH]
        yield _HEAD.pack(stream, len(part)) + part
    if end:
        yield _HEAD.pack(stream, _FIN << 24)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _WORD.pack(len(encoded)) + encoded


def _event(first: int, flags: int, frame: bytes) -> Event | None:
    payload = frame[_HEAD.size :]
    if not first >> 31:
        return Data(first, payload, bool(flags & _FIN))
    if first & 0xFFFF0000 != _CONTROL:
        raise SpdyError(f"a frame of another version than SPDY/3: {first:#x}")
    kind = first & 0xFFFF
    if kind in (_RST_STREAM, _PING, _GOAWAY) and len(payload) < _WORD.size:
        raise SpdyError(f"a frame of type {kind} with {len(payload)} bytes")
    if kind == _RST_STREAM:
        return Reset(_WORD.unpack_from(payload)[0] & _STREAM)
    if kind == _PING:
        return Ping(frame)
    if kind == _GOAWAY:
        return GoAway()
    return None  # replies to our streams, settings, windows: nothing follows from them
