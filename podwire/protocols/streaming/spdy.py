"""SPDY/3.1, as far as kubectl, kubelets and runtimes use it: streams with headers, data, an end each way.

    control frame   1 | version 3 (15 bits) | type (16) | flags (8) | length (24) | payload
    data frame      0 | stream (31 bits)                | flags (8) | length (24) | data

Headers are deflated, by one compressor for the whole connection and each way. There is no flow control, as these peers
have none: who reads slowly slows the whole connection down. What a peer may make us keep is bounded: data is given as
it comes, and everything else has a size above which the peer means harm.
"""

import enum
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PROTOCOL = "SPDY/3.1"

MAX_CONTROL = 64 * 1024
"""Bytes of a frame other than data."""
MAX_HEADERS = 64 * 1024
"""Bytes of a header block, inflated."""

_CONTROL = 0x80030000
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN = 1
_HEAD = struct.Struct("!II")
_WORD = struct.Struct("!I")
_PAIR = struct.Struct("!II")
_SYN = struct.Struct("!IIH")
_STREAM = 0x7FFFFFFF
_LENGTH = 0xFFFFFF
_BEFORE_BLOCK = {_SYN_STREAM: _SYN.size, _SYN_REPLY: _WORD.size, _HEADERS: _WORD.size}
_SIZES = {**_BEFORE_BLOCK, _RST_STREAM: _PAIR.size, _PING: _WORD.size, _GOAWAY: _PAIR.size}
"""The least that a frame of each type has."""

_METHODS = "options head post put delete trace"
_NAMES = (
    "accept accept-charset accept-encoding accept-language accept-ranges age allow authorization cache-control "
    "connection content-base content-encoding content-language content-length content-location content-md5 "
    "content-range content-type date etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range "
    "referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate "
    "method get status"
)
_LAST = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(
    len(word).to_bytes(4, "big") + word.encode("ascii") for word in (*_METHODS.split(), *_NAMES.split(), *_LAST)
) + _TAIL.encode("ascii")
"""The words that both ends know before the first header is sent: what headers are deflated against. Version 3 of the
specification, section 2.6.10.1: names and values with their lengths, as they stand in a header block, then a tail of
numbers, phrases and dates without."""


class SpdyError(Exception):
    """The peer sent what the protocol does not have; the connection is of no more use."""


class Why(enum.IntEnum):
    """Of a reset."""

    PROTOCOL_ERROR = 1
    INVALID_STREAM = 2
    REFUSED_STREAM = 3
    CANCEL = 5


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opens a stream; with `end`, it sends nothing there. Names of headers are in lower case."""

    stream: int
    headers: Mapping[str, str]
    end: bool = False


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


Event = Opened | Data | Reset | Ping | GoAway


class Connection:
    """One end of a connection, without the socket: what is to be sent is given, what has come is fed."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._received = bytearray()
        self._stream = self._left = self._flags = 0
        """Of a data frame that has come in part."""

    def open(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Open a stream. A client's numbers are odd, and each is greater than the one before."""
        return _control(_SYN_STREAM, _SYN.pack(stream, 0, 0) + self._block(headers))

    def reply(self, stream: int) -> bytes:
        """Take a stream that the peer opens."""
        return _control(_SYN_REPLY, _WORD.pack(stream) + self._block({}))

    def _block(self, headers: Mapping[str, str]) -> bytes:
        pairs = [_WORD.pack(len(headers))]
        for name, value in headers.items():
            pairs += [_text(name.lower()), _text(value)]
        return self._deflate.compress(b"".join(pairs)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yields the events that the received bytes complete; data is not reassembled. Raises SpdyError."""
        self._received += data
        while self._received:
            if self._left:
                yield self._piece()
            elif len(self._received) < _HEAD.size:
                return
            else:
                first, second = _HEAD.unpack_from(self._received)
                if first >> 31 and len(self._received) < _end(first, second):
                    return
                event = self._frame(first, second)
                if event is not None:
                    yield event

    def _piece(self) -> Data:
        content = bytes(self._received[: self._left])
        del self._received[: len(content)]
        self._left -= len(content)
        return Data(self._stream, content, end=not self._left and bool(self._flags & _FIN))

    def _frame(self, first: int, second: int) -> Event | None:
        """The next frame: a whole one, or the head of data."""
        flags, length = second >> 24, second & _LENGTH
        if not first >> 31:
            del self._received[: _HEAD.size]
            self._stream, self._left, self._flags = first, length, flags
            return None if length else Data(first, b"", bool(flags & _FIN))
        end = _end(first, second)
        frame = bytes(self._received[:end])
        del self._received[:end]
        return self._event(first & 0xFFFF, flags, frame)

    def _event(self, kind: int, flags: int, frame: bytes) -> Event | None:
        payload = frame[_HEAD.size :]
        if len(payload) < _SIZES.get(kind, 0):
            raise SpdyError(f"a frame of type {kind} with {len(payload)} bytes")
        headers = self._headers(payload[_BEFORE_BLOCK[kind] :]) if kind in _BEFORE_BLOCK else {}
        if kind == _SYN_STREAM:
            return Opened(_stream(payload), headers, bool(flags & _FIN))
        if kind == _RST_STREAM:
            return Reset(_stream(payload))
        if kind == _PING:
            return Ping(frame)
        if kind == _GOAWAY:
            return GoAway()
        if kind in (_SYN_REPLY, _HEADERS) and flags & _FIN:
            return Data(_stream(payload), b"", end=True)
        return None  # replies to our streams, settings, windows: nothing follows from them

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, MAX_HEADERS)
        except zlib.error as error:
            raise SpdyError(f"headers that cannot be inflated: {error}") from error
        if self._inflate.unconsumed_tail or self._inflate.eof:
            raise SpdyError(f"headers of more than {MAX_HEADERS} bytes, or after the end of all headers")
        return _pairs(plain)


def data(stream: int, content: bytes, *, end: bool = False) -> Iterator[bytes]:
    """The frames that carry these bytes; with `end`, nothing follows on this stream."""
    for start in range(0, len(content), _LENGTH):
        part = content[start : start + _LENGTH]
        yield _HEAD.pack(stream, len(part)) + part
    if end:
        yield _HEAD.pack(stream, _FIN << 24)


def reset(stream: int, why: Why) -> bytes:
    return _control(_RST_STREAM, _PAIR.pack(stream, why))


def go_away(last: int, *, blame: bool = False) -> bytes:
    """Nothing more is taken after the stream `last`; with `blame`, because of what the peer did."""
    return _control(_GOAWAY, _PAIR.pack(last, int(blame)))


def _control(kind: int, payload: bytes) -> bytes:
    return _HEAD.pack(_CONTROL | kind, len(payload)) + payload


def _end(first: int, second: int) -> int:
    """Where a control frame ends that begins with these two words. Raises SpdyError before it is waited for."""
    length = second & _LENGTH
    if first & 0xFFFF0000 != _CONTROL:
        raise SpdyError(f"a frame of another version than SPDY/3: {first:#x}")
    if length > MAX_CONTROL:
        raise SpdyError(f"a frame of type {first & 0xFFFF} with {length} bytes")
    return _HEAD.size + length


def _stream(payload: bytes) -> int:
    number: int = _WORD.unpack_from(payload)[0]
    return number & _STREAM


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _WORD.pack(len(encoded)) + encoded


def _pairs(block: bytes) -> dict[str, str]:
    """The headers of a block. Raises SpdyError unless it is exactly that."""
    try:
        [count] = _WORD.unpack_from(block)
        texts, at = [], _WORD.size
        while at < len(block):
            [length] = _WORD.unpack_from(block, at)
            at += _WORD.size + length
            texts.append(block[at - length : at].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise SpdyError(f"headers that cannot be read: {error}") from error
    if at != len(block) or len(texts) != 2 * count:
        raise SpdyError(f"{count} headers in a block of {len(texts)} words")
    return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}
