"""Frames: ten bytes of header, then data.

     0        4          8      9      10
    | length | stream id | kind | flags | data …    big-endian, length counts the data alone

A frame that is too long is skipped as it arrives, and reported: the stream of frames goes on behind it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

HEADER = struct.Struct(">IIBB")
MAX_DATA = 4 << 20
"""Bytes of data in one frame."""
MAX_STREAM = (1 << 32) - 1

REQUEST = 1
RESPONSE = 2
DATA = 3

REMOTE_CLOSED = 0x01
REMOTE_OPEN = 0x02
NO_DATA = 0x04


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; `oversize` is how long its data would have been when it was too long to be kept."""

    stream: int
    kind: int
    flags: int
    data: bytes
    oversize: int = 0


def encode(stream: int, kind: int, data: bytes, flags: int = 0) -> bytes:
    """The bytes of one frame. Raises ValueError when the data is too long; see MAX_DATA."""
    if len(data) > MAX_DATA:
        raise ValueError(f"{len(data)} bytes of data, and a frame holds {MAX_DATA}")
    return HEADER.pack(len(data), stream, kind, flags) + data


class Frames:
    """Bytes in, in any pieces; frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that end in this chunk."""
        skipped = min(self._skip, len(chunk))
        self._skip -= skipped
        chunk = chunk[skipped:] if skipped else chunk
        self._buffer += chunk
        while len(self._buffer) >= HEADER.size:
            length, stream, kind, flags = HEADER.unpack_from(self._buffer)
            if length > MAX_DATA:
                here = len(self._buffer) - HEADER.size
                self._skip = max(0, length - here)
                del self._buffer[: HEADER.size + min(length, here)]
                yield Frame(stream, kind, flags, b"", oversize=length)
                continue
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            data = bytes(memoryview(self._buffer)[HEADER.size : end])  # one copy: a slice of the buffer would be two
            del self._buffer[:end]
            yield Frame(stream, kind, flags, data)

    @property
    def idle(self) -> bool:
        """Whether the bytes so far end with a whole frame."""
        return not self._buffer and not self._skip
