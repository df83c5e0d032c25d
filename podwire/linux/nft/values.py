"""Values of nft: elements, counters, changes of a set."""

from collections.abc import Sequence
from typing import NamedTuple


class Element(NamedTuple):
    """A member of an nft set, or a key of an nft map with its data; see `keys.py` for their bytes."""

    key: bytes
    data: bytes | str = b""
    """Bytes, or a verdict: `drop`, `jump CHAIN`."""
    comment: str = ""
    """The owner tag, at most 127 bytes."""
    end: bytes = b""
    """The last key of the range, in a set of ranges."""


class Counter(NamedTuple):
    """The value of an nft counter."""

    packets: int
    bytes: int


class Change(NamedTuple):
    """Elements to delete from a set or map, and then to add."""

    set: str
    add: Sequence[Element] = ()
    delete: Sequence[Element] = ()
