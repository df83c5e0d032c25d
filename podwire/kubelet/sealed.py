"""Values as bytes that tell whether they still are what was written. Pure."""

import hashlib
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Damaged(Exception):
    """What is there is not what was written."""


def seal(value: object) -> bytes:
    """The checksum of what follows, and that."""
    body = msgspec.json.encode(value)
    return _checksum(body) + b"\n" + body


def opened(data: bytes, type_: type[T]) -> T:
    """Damaged."""
    told, _, body = data.partition(b"\n")
    if told != _checksum(body):
        raise Damaged("the checksum is another")
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as error:
        raise Damaged(str(error)) from error


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).hexdigest().encode()
