"""Several conversations on one stream of bytes: eight bytes of header, then a piece of one conversation.

     0               4        8
    | conversation   | length | piece …    big-endian

There is no opening and closing: both peers know the numbers that they use, and pieces of others are dropped.

A peer written in Go reads each piece into a buffer of 4096 bytes and gives up on one that does not fit, except that the
data of a ttrpc frame, whose length its header has, may come in one piece however long it is. So a frame of ttrpc that
is longer than that travels as two pieces: its first 4096 bytes, and all the rest. Any other cut is accepted.
"""

import struct
from collections.abc import Iterator

from podwire.protocols.ttrpc.wire import HEADER as FRAME_HEADER
from podwire.protocols.ttrpc.wire import MAX_DATA

HEADER = struct.Struct(">II")
FIRST_PIECE = 4096
MAX_PIECE = MAX_DATA + FRAME_HEADER.size

PLUGIN_SERVICE = 1
"""The conversation in which the runtime calls and the plugin answers."""
RUNTIME_SERVICE = 2
"""The conversation in which the plugin calls and the runtime answers."""


class BadMux(ValueError):
    """Bytes that cannot be pieces of conversations: nothing behind them can be understood."""


def pieces(conversation: int, frame: bytes) -> bytes:
    """The bytes by which one frame of ttrpc travels."""
    if len(frame) <= FIRST_PIECE:
        return HEADER.pack(conversation, len(frame)) + frame
    first, rest = frame[:FIRST_PIECE], frame[FIRST_PIECE:]
    return b"".join((HEADER.pack(conversation, len(first)), first, HEADER.pack(conversation, len(rest)), rest))


class Pieces:
    """Bytes in, in any cut; (conversation, piece) out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces that end in this chunk. Raises BadMux."""
        self._buffer += chunk
        while len(self._buffer) >= HEADER.size:
            conversation, length = HEADER.unpack_from(self._buffer)
            if length > MAX_PIECE:
                raise BadMux(f"a piece of {length} bytes for conversation {conversation}; at most {MAX_PIECE} fit")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            piece = bytes(memoryview(self._buffer)[HEADER.size : end])  # one copy: a slice of the buffer would be two
            del self._buffer[:end]
            yield conversation, piece

    @property
    def idle(self) -> bool:
        """Whether the bytes so far end with a whole piece."""
        return not self._buffer
