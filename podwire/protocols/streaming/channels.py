"""Exec and attach: channels, the streams that a client asks for, and messages with a channel in their first byte."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
PROTOCOLS = (V5, V4)
"""The newest first; v5 is v4 and half-closing."""

CLOSE = 255
"""Where a channel would be named, in v5: the next byte is a channel on which nothing follows."""

CHUNK = 32 * 1024
"""Bytes of data in one message of ours; peers read into buffers of this size."""


class Channel(enum.IntEnum):
    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    """The outcome, at the end."""
    RESIZE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The connected streams. A terminal has no separate stderr."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class Violation(Exception):
    """The peer sent what the protocol does not have; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes on a channel; none at all is a greeting."""

    channel: int
    data: bytes


@dataclass(frozen=True, slots=True)
class HalfClose:
    """Nothing more comes on this channel."""

    channel: int


def encode(channel: int, data: bytes) -> Iterator[bytes]:
    """The messages that carry these bytes."""
    head = bytes((channel,))
    for start in range(0, len(data), CHUNK):
        yield head + data[start : start + CHUNK]


def greeting(channel: int) -> bytes:
    """A message without data: tells that the channel is there."""
    return bytes((channel,))


def half_close(channel: int) -> bytes:
    return bytes((CLOSE, channel))


def decode(message: bytes | str, *, protocol: str, channels: int) -> Data | HalfClose | None:
    """Parses a message; None when it is empty or for an unknown channel.

    Text is taken as its bytes, as older clients in browsers send it. Raises Violation.
    """
    data = message.encode() if isinstance(message, str) else message
    if not data:
        return None
    if data[0] == CLOSE and protocol == V5:
        if len(data) != 2 or data[1] >= channels:
            raise Violation("a half-close must be followed by one channel that there is, and nothing else")
        return HalfClose(data[1])
    return Data(data[0], data[1:]) if data[0] < channels else None
