"""The size of a terminal, as JSON objects one after the other."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from podwire.protocols.streaming.channels import Violation

MAX_WAITING = 1024
"""Bytes of a size that is not complete."""

_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Size:
    """Columns and rows."""

    width: int
    height: int


def encode(size: Size) -> bytes:
    return b'{"Width":%d,"Height":%d}\n' % (size.width, size.height)


class SizeReader:
    """Takes the bytes of the channel as they come; objects may be cut and joined anywhere."""

    def __init__(self) -> None:
        self._waiting = ""

    def feed(self, data: bytes) -> Iterator[Size]:
        """The sizes that are complete. Raises Violation."""
        try:
            text = self._waiting + data.decode("ascii")
        except UnicodeDecodeError as error:
            raise Violation("a terminal's size is not ASCII") from error
        at = 0
        while (at := _end_of_space(text, at)) < len(text):
            try:
                value, at = _decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                if len(text) - at > MAX_WAITING or text[at] != "{":
                    raise Violation("a terminal's size is not JSON") from error
                break
            yield _size(value)
        self._waiting = text[at:]


def _end_of_space(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _size(value: Any) -> Size:
    """Go's decoder, which others are written for, does not look at the case of names."""
    fields = {str(name).lower(): size for name, size in value.items()} if isinstance(value, dict) else {}
    numbers = (fields.get("width", 0), fields.get("height", 0))
    if not fields or any(type(number) is not int or not 0 <= number <= 0xFFFF for number in numbers):
        raise Violation("a terminal's size is two numbers of 16 bits: Width and Height")
    return Size(*numbers)
