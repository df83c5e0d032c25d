"""Checkpoints of format 0, which had no envelope: a line with the checksum of the JSON that follows. Pure."""

import hashlib
from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode(data: bytes, type_: type[T]) -> T:
    """Raises ValueError."""
    checksum, _, body = data.partition(b"\n")
    if checksum != hashlib.blake2b(body, digest_size=16).hexdigest().encode():
        raise ValueError("checksum mismatch")
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
