"""Netlink messages as bytes: headers, attributes, requests. No I/O."""

import struct
from collections.abc import Iterator
from sys import byteorder
from typing import NamedTuple

from podwire.linux.errors import Names

HEADER = struct.Struct("=IHHII")  # length, type, flags, seq, port
ATTRIBUTE = struct.Struct("=HH")  # length, type
U16 = struct.Struct("=H")
U32 = struct.Struct("=I")
BE16 = struct.Struct(">H")
BE32 = struct.Struct(">I")

NESTED, TYPE_MASK = 0x8000, 0x3FFF
REQUEST, ACK, DUMP, REPLACE, EXCL, CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")


class Request(NamedTuple):
    """One message for the kernel; `operation` and `errors` say what a refusal means."""

    kind: int
    flags: int
    body: bytes
    operation: str
    errors: Names
    held: tuple[int, ...] = ()
    """Descriptors that the body names; the sender closes them after the request."""


def attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return ATTRIBUTE.pack(length, kind) + value + _PADDING[length & 3]


def nested(kind: int, *inner: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(inner))


def u8(kind: int, value: int) -> bytes:
    return attribute(kind, bytes((value,)))


def u16(kind: int, value: int) -> bytes:
    return attribute(kind, U16.pack(value))


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, U32.pack(value))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def iter_attributes(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Kinds and values in order; a broken tail ends the walk, as it does in the kernel."""
    end = len(data)
    while start + 4 <= end:
        length, kind = ATTRIBUTE.unpack_from(data, start)
        if length < 4 or start + length > end:
            return
        yield kind & TYPE_MASK, data[start + 4 : start + length]
        start += (length + 3) & ~3


def attributes(data: bytes, start: int = 0) -> dict[int, bytes]:
    return dict(iter_attributes(data, start))


def string(value: bytes) -> str:
    return value.partition(b"\0")[0].decode("utf-8", "replace")


def number(value: bytes | None, default: int = 0) -> int:
    """A host-order integer of whatever width it has."""
    return default if value is None else int.from_bytes(value, byteorder)


def big(value: bytes | None, default: int = 0) -> int:
    """A network-order integer, as netfilter writes them."""
    return default if value is None else int.from_bytes(value, "big")
