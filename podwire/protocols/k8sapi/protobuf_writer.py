"""Objects as Kubernetes' protobuf: answers for clients that accept nothing else.

The table of messages is the one that bodies are decoded by, wire.txt. A message is compiled to functions, one for each
member's JSON name, when it is first written. Members that an object does not have are left out: their zero is the same.
"""

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from podwire.protocols.k8sapi.protobuf import MAGIC, Field, Message, load_table
from podwire.protocols.k8sapi.protowire import FIXED64, SIZED, VARINT

MEDIA = "application/vnd.kubernetes.protobuf"
STREAMED = f"{MEDIA};stream=watch"

Json = Mapping[str, Any]
Encode = Callable[[Any], bytes]
"""A value to the content of its field."""
Put = Callable[[Json], bytes]
"""An object to its field on the wire; empty if it has no such member."""

_DOUBLE = struct.Struct("<d")
_LENGTH = struct.Struct(">I")
_64_BITS = 0xFFFF_FFFF_FFFF_FFFF
_ITSELF, _INLINED = "=", "+"


class NoMessage(LookupError):
    """A kind has no protobuf form."""


def encode(obj: Json) -> bytes:
    """Returns an object or a list of them as a body. Raises NoMessage."""
    api_version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    content = _content(api_version, kind, obj)
    type_meta = sized(1, _text(api_version)) + sized(2, _text(kind))
    return b"".join((MAGIC, sized(1, type_meta), sized(2, content)))


def encode_event(event: Json) -> bytes:
    """Returns a frame of a watch, behind its length."""
    raw = sized(1, encode(event["object"]))
    frame = sized(1, _text(event["type"])) + sized(2, raw)
    return _LENGTH.pack(len(frame)) + frame


def has_message(api_version: str, kind: str) -> bool:
    return (api_version, kind) in load_table().kinds


def _content(api_version: str, kind: str, obj: Json) -> bytes:
    table = load_table()
    if api_version in _METADATA_LIST and kind == "PartialObjectMetadata":
        return sized(1, _written(table.messages["meta.v1.ObjectMeta"], obj["metadata"]))
    name = table.kinds.get((api_version, kind)) or ("meta.v1.Status" if kind == "Status" else "")
    if name:
        return _written(table.messages[name], obj)
    if not kind.endswith("List"):
        raise NoMessage(f'no kind "{kind}" of version "{api_version}" has a protobuf form')
    items = [encode_item(api_version, kind.removesuffix("List"), item) for item in obj.get("items") or ()]
    return b"".join(_list_parts(api_version, obj.get("metadata") or {}, items))


def encode_item(api_version: str, kind: str, obj: Json) -> bytes:
    """Returns an object as it is within a list of its kind. Raises NoMessage."""
    number = _METADATA_LIST.get(api_version, _LIST)[1]
    return sized(number, _content(api_version, kind, obj))


def encode_list(api_version: str, list_kind: str, metadata: Json, items: Sequence[bytes]) -> list[bytes]:
    """Returns the parts of a list as a body; `items` are of `encode_item`."""
    parts = _list_parts(api_version, metadata, items)
    type_meta = sized(1, _text(api_version)) + sized(2, _text(list_kind))
    return [MAGIC, sized(1, type_meta), varint(2 << 3 | SIZED), varint(sum(map(len, parts))), *parts]


def _list_parts(api_version: str, metadata: Json, items: Sequence[bytes]) -> list[bytes]:
    numbers = _METADATA_LIST.get(api_version, _LIST)
    own = sized(numbers[0], _written(load_table().messages["meta.v1.ListMeta"], metadata))
    return [own, *items] if numbers[0] < numbers[1] else [*items, own]


_LIST = (1, 2)
"""The numbers of `metadata` and `items` in a list."""
_METADATA_LIST = {"meta.k8s.io/v1": _LIST, "meta.k8s.io/v1beta1": (2, 1)}
"""The same of a PartialObjectMetadataList, by version."""


def varint(number: int) -> bytes:
    number &= _64_BITS
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(number: int, content: bytes) -> bytes:
    return varint(number << 3 | SIZED) + varint(len(content)) + content


def _text(value: str) -> bytes:
    return value.encode()


def _number(number: int, value: Any) -> bytes:
    return varint(number << 3 | VARINT) + varint(int(value))


def _double(number: int, value: Any) -> bytes:
    return varint(number << 3 | FIXED64) + _DOUBLE.pack(float(value))


def _quantity(value: Any) -> bytes:
    return sized(1, _text(str(value)))


def _time(value: Any) -> bytes:
    if not value:
        return b""
    moment = datetime.fromisoformat(value)
    seconds = int(moment.replace(microsecond=0).timestamp())
    return _number(1, seconds) + (_number(2, moment.microsecond * 1000) if moment.microsecond else b"")


def _int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return _number(1, 1) + _number(2, 0) + sized(3, _text(value))
    return _number(1, 0) + _number(2, value) + sized(3, b"")


def _raw(value: Any) -> bytes:
    return sized(1, msgspec.json.encode(value))


_VALUES: Mapping[str, Encode] = {
    "s": _text,
    "y": base64.b64decode,
    "Quantity": _quantity,
    "Time": _time,
    "MicroTime": _time,
    "IntOrString": _int_or_string,
    "Raw": _raw,
}
_NUMBERS: Mapping[str, Callable[[int, Any], bytes]] = {"i": _number, "b": _number, "d": _double}
_PYTHON: Mapping[str, type | tuple[type, ...]] = {"b": bool, "s": str}


def _written(message: Message, obj: Any) -> bytes:
    return b"".join([put(obj) for put in _compiled(message.package, message.name)])


@cache
def _compiled(package: str, name: str) -> tuple[Put, ...]:
    message = load_table().messages[f"{package}.{name}"]
    return tuple(_put(message, field) for field in message.parsed())


def _put(message: Message, field: Field) -> Put:
    if field.name == _INLINED:
        inner = load_table().messages[message.qualified(field.type)]
        return lambda obj: sized(field.number, _written(inner, obj))
    write = _field(message, field)
    if field.name == _ITSELF:
        return lambda value: write(value) if _is(field, value) else b""
    name = field.name

    def put(obj: Json) -> bytes:
        value = obj.get(name)
        return b"" if value is None else write(value)

    return put


def _is(field: Field, value: Any) -> bool:
    """Returns whether a value is the one of several that a message may stand for."""
    if field.form == "[]":
        return isinstance(value, list)
    return isinstance(value, _PYTHON.get(field.type, dict))


def _field(message: Message, field: Field) -> Encode:
    """Returns the function that writes a member's value with its tag."""
    number = field.number
    if field.type in _NUMBERS:
        write = _NUMBERS[field.type]
        if field.form == "[]":
            return lambda values: b"".join(write(number, value) for value in values)
        return lambda value: write(number, value)
    encode_value = _VALUES.get(field.type) or _message_writer(message, field)
    if field.form == "[]":
        return lambda values: b"".join(sized(number, encode_value(value)) for value in values)
    if field.form == "{}":
        return lambda members: b"".join(
            sized(number, sized(1, _text(key)) + sized(2, encode_value(value))) for key, value in members.items()
        )
    return lambda value: sized(number, encode_value(value))


def _message_writer(message: Message, field: Field) -> Encode:
    inner = load_table().messages[message.qualified(field.type)]
    return lambda value: _written(inner, value)
