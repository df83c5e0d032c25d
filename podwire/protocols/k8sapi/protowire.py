"""Protobuf's wire format, read into JSON values: tags, lengths, numbers, and the messages that JSON writes otherwise.

A message is a dict from tags (number and wire type) to functions that store a field; see protobuf.py for where they
come from. Nothing is copied before its length is checked against the message that it is in.

`levels` is how deep a value may still be nested; what is too deep is refused before the stack is in danger.
A buffer that ends too early shows as IndexError, a string that is not UTF-8 as UnicodeDecodeError: protobuf.decode
makes a BadBody of them, so that no field pays for a check of its own.

Damaged messages are refused as Go's generated decoders refuse them, or more strictly: a field whose wire type is not
that of its number, a tag out of range, the end of a group, a field that is cut off. Fields of unknown numbers are
skipped. An object that is given twice is merged; of a number or string given twice, the last one counts.
"""

import base64
import math
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from podwire.protocols.k8sapi.codec import (
    CONTAINERS,
    MAX_DEPTH,
    MOST_CONTAINERS,
    MOST_MEMBERS,
    BadBody,
    decode_json,
    too_many,
)

VARINT, FIXED64, SIZED, FIXED32 = 0, 1, 2, 5
"""Wire types. 3 and 4 are groups, which no Kubernetes message has."""
_END_GROUP = 4
_HIGHEST_TAG = (1 << 32) - 1
"""Field numbers have 29 bits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLE = struct.Struct("<d")

Object = dict[str, Any]
Store = Callable[..., None]
"""Puts a field into an object: store(out, buffer, start, stop, levels) if it has a size, else store(out, number)."""
Entry = tuple[int, int, str, Store]
"""Number, wire type, name and store function of a field."""
Read = Callable[[bytes, int, int, int], Any]
"""The value in buffer[start:stop], which may have so many levels."""
Convert = Callable[[Any], Any]


class Fields(dict[int, Store]):
    """The fields of a message: store functions by tag (number and wire type), and names by number."""

    def __init__(self, message: str, *entries: Entry) -> None:
        super().__init__({number << 3 | wire: store for number, wire, _, store in entries})
        self.message = message
        self.names = {number: name for number, _, name, _ in entries}

    def check_unknown(self, key: int) -> None:
        """Raises BadBody for a tag that no field of this message has, unless its number is unknown, too."""
        number, wire = key >> 3, key & 7
        if wire == _END_GROUP:
            raise BadBody(f"proto: {self.message}: wiretype end group for non-group")
        if not number or key > _HIGHEST_TAG:
            raise BadBody(f"proto: {self.message}: illegal tag {number} (wire type {wire})")
        if number in self.names:
            raise BadBody(f"proto: {self.message}: wrong wireType = {wire} for field {self.names[number]}")


def fill(  # noqa: C901 -- the one loop that every byte goes through: a call per field would be a third of its time
    out: Object, fields: Fields, buffer: bytes, at: int, end: int, levels: int
) -> None:
    """Store every known field of the message in buffer[at:end]; the others are passed over."""
    if levels <= 0:
        raise BadBody(f"the protobuf message is nested more than {MAX_DEPTH} levels deep")
    while at < end:
        key = buffer[at]
        at += 1
        if key > 127:
            key, at = varint(buffer, at - 1)
        store = fields.get(key)
        if store is None:
            fields.check_unknown(key)
        wire = key & 7
        if wire == SIZED:
            size = buffer[at]
            at += 1
            if size > 127:
                size, at = varint(buffer, at - 1)
            start, at = at, at + size
            if at > end:
                break
            if store:
                store(out, buffer, start, at, levels)
        else:
            number, at = varint(buffer, at) if wire == VARINT else _fixed(wire, buffer, at)
            if store:
                store(out, number)
    if at != end:
        raise BadBody("a protobuf field is longer than the message that it is in")


def varint(buffer: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of at most 64 bits, and the place behind it."""
    number = shift = 0
    while shift < 70:
        byte = buffer[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise BadBody("a protobuf number is longer than 64 bits")


def _fixed(wire: int, buffer: bytes, at: int) -> tuple[float, int]:
    """A double, and the place behind it; nothing that we know is 32 bits wide."""
    if wire == FIXED32:
        return 0.0, at + 4
    if wire != FIXED64:
        raise BadBody(f"protobuf wire type {wire} is not supported")
    if at + 8 > len(buffer):
        raise IndexError(at)
    return _DOUBLE.unpack_from(buffer, at)[0], at + 8


# What a field's bytes or number mean


def text(buffer: bytes, start: int, stop: int, _levels: int) -> str:
    return str(buffer[start:stop], "utf-8")


def base64_text(buffer: bytes, start: int, stop: int, _levels: int) -> str:
    return base64.b64encode(buffer[start:stop]).decode()


def _json(buffer: bytes, start: int, stop: int, levels: int) -> Any:
    return decode_json(buffer[start:stop], max_depth=max(levels, 0)).value if start < stop else None


def integer(number: int) -> int:
    """Numbers are signed; a negative one fills all 64 bits."""
    return number if number < 1 << 63 else number - (1 << 64)


def double(number: float) -> float | int:
    """As JSON has it: finite, and 5 rather than 5.0."""
    if not math.isfinite(number):
        raise BadBody("a number in the protobuf message is not finite")
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def raw(buffer: bytes, start: int, stop: int, levels: int) -> Any:
    """RawExtension, JSON and FieldsV1: a value of any form, carried as JSON text."""
    inner: Object = {}
    fill(inner, _RAW, buffer, start, stop, levels + 1)
    return inner.get("raw")


def quantity(buffer: bytes, start: int, stop: int, _levels: int) -> str:
    inner: Object = {}
    fill(inner, _QUANTITY, buffer, start, stop, 1)
    return str(inner.get("string", "0"))


def int_or_string(buffer: bytes, start: int, stop: int, _levels: int) -> int | str:
    inner: Object = {"type": 0, "intVal": 0, "strVal": ""}
    fill(inner, _INT_OR_STRING, buffer, start, stop, 1)
    if inner["type"] not in (0, 1):
        raise BadBody(f"an IntOrString in the protobuf message has the type {inner['type']}")
    value: int | str = inner["strVal"] if inner["type"] else inner["intVal"]
    return value


def time(buffer: bytes, start: int, stop: int, _levels: int) -> str | None:
    """To the second, in UTC. The empty message is the time that was never set."""
    return _instant(buffer, start, stop)[0].isoformat()[:19] + "Z" if start < stop else None


def micro_time(buffer: bytes, start: int, stop: int, _levels: int) -> str | None:
    if start == stop:
        return None
    moment, nanos = _instant(buffer, start, stop)
    if not 0 <= nanos < 1_000_000_000:
        raise BadBody(f"a time in the protobuf message is out of range: {nanos} nanoseconds")
    return f"{moment.isoformat()[:19]}.{nanos // 1000:06}Z"


def _instant(buffer: bytes, start: int, stop: int) -> tuple[datetime, int]:
    inner: Object = {"seconds": 0, "nanos": 0}
    fill(inner, _TIMESTAMP, buffer, start, stop, 1)
    try:
        return _EPOCH + timedelta(seconds=inner["seconds"]), inner["nanos"]
    except OverflowError:
        raise BadBody(f"a time in the protobuf message is out of range: {inner['seconds']} seconds") from None


# Ways to store a field


def single(name: str, read: Read, *, keep: bool) -> Store:
    """Stores a value unless it is None, or empty without `keep`: both mean unset.

    A second value is refused: Go merges the messages that some values are, such as an IntOrString, and no encoder
    writes two.
    """

    def store(out: Object, buffer: bytes, start: int, stop: int, levels: int) -> None:
        if name in out:
            raise BadBody(f"proto: field {name} is given twice")
        value = read(buffer, start, stop, levels - 1)
        if value or (keep and value is not None):
            out[name] = value

    return store


def single_message(name: str, fields: Callable[[], "Fields"], *, keep: bool) -> Store:
    """Stores a message, merged with the one that the field has already; an empty one without `keep` means unset."""

    def store(out: Object, buffer: bytes, start: int, stop: int, levels: int) -> None:
        value = out.get(name)
        if value is None:
            value = {}
        fill(value, fields(), buffer, start, stop, levels - 1)
        if value or keep:
            out[name] = value

    return store


def inlined(fields: Callable[[], "Fields"]) -> Store:
    """Stores the fields of a message among those of the one that it is in."""

    def store(out: Object, buffer: bytes, start: int, stop: int, levels: int) -> None:
        fill(out, fields(), buffer, start, stop, levels)

    return store


def single_text(name: str, *, keep: bool) -> Store:
    """As `single` does with `text`, for the most frequent field by far."""

    def store(out: Object, buffer: bytes, start: int, stop: int, _levels: int) -> None:
        if keep or start < stop:
            out[name] = str(buffer[start:stop], "utf-8")
        elif name in out:
            del out[name]

    return store


def number(name: str, convert: Convert, *, keep: bool) -> Store:
    def store(out: Object, value: Any) -> None:
        if keep or value:
            out[name] = convert(value)
        elif name in out:
            del out[name]

    return store


def listed(name: str, read: Read) -> Store:
    def store(out: Object, buffer: bytes, start: int, stop: int, levels: int) -> None:
        values = out.setdefault(name, [])
        values.append(read(buffer, start, stop, levels - 2))
        if len(values) > MOST_CONTAINERS and type(values[0]) is dict:
            raise BadBody(too_many(MOST_CONTAINERS, CONTAINERS))

    return store


def number_listed(name: str, convert: Convert) -> Store:
    def store(out: Object, value: Any) -> None:
        out.setdefault(name, []).append(convert(value))

    return store


def numbers_packed(name: str, convert: Convert) -> Store:
    def store(out: Object, buffer: bytes, at: int, stop: int, _levels: int) -> None:
        numbers = out.setdefault(name, [])
        while at < stop:
            value, at = varint(buffer, at)
            numbers.append(convert(value))
        if at > stop:
            raise BadBody("a protobuf number ends outside of its list")

    return store


def mapped(name: str, read: Read) -> Store:
    """An entry is a message: 1 is the key, 2 the value; a part that it lacks is empty."""
    entry = Fields(
        name, (1, SIZED, "key", single_text("key", keep=True)), (2, SIZED, "value", single("value", read, keep=True))
    )

    def store(out: Object, buffer: bytes, start: int, stop: int, levels: int) -> None:
        pair: Object = {}
        fill(pair, entry, buffer, start, stop, levels - 1)
        value = pair["value"] if "value" in pair else read(b"", 0, 0, levels - 2)
        members = out.setdefault(name, {})
        members[pair.get("key", "")] = value
        if len(members) > MOST_MEMBERS:
            raise BadBody(too_many(MOST_MEMBERS, "members"))

    return store


_RAW = Fields("RawExtension", (1, SIZED, "raw", single("raw", _json, keep=True)))
_QUANTITY = Fields("Quantity", (1, SIZED, "string", single_text("string", keep=True)))
_INT_OR_STRING = Fields(
    "IntOrString",
    (1, VARINT, "type", number("type", integer, keep=True)),
    (2, VARINT, "intVal", number("intVal", integer, keep=True)),
    (3, SIZED, "strVal", single_text("strVal", keep=True)),
)
_TIMESTAMP = Fields(
    "Timestamp",
    (1, VARINT, "seconds", number("seconds", integer, keep=True)),
    (2, VARINT, "nanos", number("nanos", integer, keep=True)),
)
