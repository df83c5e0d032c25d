"""The protobuf form of an OpenAPI v2 document: the messages of gnostic's OpenAPIv2.proto, which Go clients ask for.

Written straight from the JSON form. A message is a table from the words of JSON to field numbers and encoders; words
that begin with `x-` are its vendor extensions.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

Json = Mapping[str, Any]
Encode = Callable[[Any], bytes]
Table = dict[str, tuple[int, Callable[[int, Any], bytes]]]
"""JSON word to field number and encoder of the field."""

_VARINT, _DOUBLE, _SIZED = 0, 1, 2
_FLOAT = struct.Struct("<d")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _sized(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _SIZED) + _varint(len(content)) + content


def _text(number: int, value: Any) -> bytes:
    return _sized(number, str(value).encode()) if value else b""


def _texts(number: int, value: Any) -> bytes:
    return b"".join(_sized(number, text.encode()) for text in value)


def _integer(number: int, value: Any) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF) if value else b""


def _double(number: int, value: Any) -> bytes:
    return _varint(number << 3 | _DOUBLE) + _FLOAT.pack(float(value)) if value else b""


def _any(number: int, value: Any) -> bytes:
    """A value of any form, as YAML; JSON is YAML."""
    return _sized(number, _text(2, msgspec.json.encode(value).decode()))


def _anys(number: int, value: Any) -> bytes:
    return b"".join(_any(number, one) for one in value)


def _message(encode: Encode) -> Callable[[int, Any], bytes]:
    return lambda number, value: _sized(number, encode(value))


def _messages(encode: Encode) -> Callable[[int, Any], bytes]:
    return lambda number, value: b"".join(_sized(number, encode(one)) for one in value)


def _named(number: int, encode: Encode) -> Encode:
    """A message that stands for an object: entries with a name and a value."""
    return lambda value: b"".join(
        _sized(number, _text(1, name) + _sized(2, encode(member))) for name, member in value.items()
    )


def _encode(value: Json, table: Table, extensions: int) -> bytes:
    parts = []
    for word, member in value.items():
        if (field := table.get(word)) is not None:
            parts.append(field[1](field[0], member))
        elif word.startswith("x-"):
            parts.append(_sized(extensions, _text(1, word) + _any(2, member)))
    return b"".join(parts)


def _schema(schema: Any) -> bytes:
    return _encode(schema, _SCHEMA, 31)


def _values(number: int, value: Any) -> bytes:
    """additionalProperties: a schema or a boolean."""
    inner = _integer(2, value) if isinstance(value, bool) else _sized(1, _schema(value))
    return _sized(number, inner)


def _items(number: int, value: Any) -> bytes:
    return _sized(number, _sized(1, _schema(value)))


def _type(number: int, value: Any) -> bytes:
    return _sized(number, _texts(1, [value] if isinstance(value, str) else value))


_VALIDATION: Iterable[tuple[str, Callable[[int, Any], bytes]]] = (
    ("default", _any), ("maximum", _double), ("exclusiveMaximum", _integer), ("minimum", _double),
    ("exclusiveMinimum", _integer), ("maxLength", _integer), ("minLength", _integer), ("pattern", _text),
    ("maxItems", _integer), ("minItems", _integer), ("uniqueItems", _integer), ("enum", _anys), ("multipleOf", _double),
)  # fmt: skip

_SCHEMA: Table = {
    "$ref": (1, _text), "format": (2, _text), "title": (3, _text), "description": (4, _text), "default": (5, _any),
    "multipleOf": (6, _double), "maximum": (7, _double), "exclusiveMaximum": (8, _integer), "minimum": (9, _double),
    "exclusiveMinimum": (10, _integer), "maxLength": (11, _integer), "minLength": (12, _integer),
    "pattern": (13, _text), "maxItems": (14, _integer), "minItems": (15, _integer), "uniqueItems": (16, _integer),
    "maxProperties": (17, _integer), "minProperties": (18, _integer), "required": (19, _texts), "enum": (20, _anys),
    "additionalProperties": (21, _values), "type": (22, _type), "items": (23, _items),
    "allOf": (24, _messages(_schema)), "properties": (25, _message(_named(1, _schema))), "example": (30, _any),
}  # fmt: skip

_BODY: Table = {
    "description": (1, _text), "name": (2, _text), "in": (3, _text), "required": (4, _integer),
    "schema": (5, _message(_schema)),
}  # fmt: skip


def _plain_parameter(first: int) -> Table:
    """Path and query parameters have the same fields; a query parameter may be empty, which moves the rest by one."""
    words: Table = {"required": (1, _integer), "in": (2, _text), "description": (3, _text), "name": (4, _text)}
    words |= {"type": (first, _text), "format": (first + 1, _text)}
    return words | {word: (first + 4 + index, encode) for index, (word, encode) in enumerate(_VALIDATION)}


_QUERY, _PATH = _plain_parameter(6), _plain_parameter(5)


def _parameter(parameter: Any) -> bytes:
    if parameter["in"] == "body":
        return _sized(1, _encode(parameter, _BODY, 6))
    if parameter["in"] == "query":
        return _sized(2, _sized(3, _encode(parameter, _QUERY, 23)))
    if parameter["in"] == "path":
        return _sized(2, _sized(4, _encode(parameter, _PATH, 22)))
    raise ValueError(f'parameters in "{parameter["in"]}" are not supported')


def _parameter_item(parameter: Any) -> bytes:
    """A parameter, or a reference to one of the document."""
    if "$ref" in parameter:
        return _sized(2, _text(1, parameter["$ref"]))
    return _sized(1, _parameter(parameter))


def _response(response: Any) -> bytes:
    schema = response.get("schema")
    inner = _text(1, response["description"])
    return _sized(1, inner if schema is None else inner + _sized(2, _sized(1, _schema(schema))))


_OPERATION: Table = {
    "tags": (1, _texts), "summary": (2, _text), "description": (3, _text), "operationId": (5, _text),
    "produces": (6, _texts), "consumes": (7, _texts), "parameters": (8, _messages(_parameter_item)),
    "responses": (9, _message(_named(1, _response))), "schemes": (10, _texts), "deprecated": (11, _integer),
}  # fmt: skip


def _operation(operation: Any) -> bytes:
    return _encode(operation, _OPERATION, 13)


_PATH_ITEM: Table = {
    **{method: (number, _message(_operation)) for method, number in
       (("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("options", 6), ("head", 7), ("patch", 8))},
    "parameters": (9, _messages(_parameter_item)),
}  # fmt: skip

_INFO: Table = {"title": (1, _text), "version": (2, _text)}

_DOCUMENT: Table = {
    "swagger": (1, _text),
    "info": (2, _message(lambda info: _encode(info, _INFO, 7))),
    "paths": (8, _message(_named(2, lambda item: _encode(item, _PATH_ITEM, 10)))),
    "definitions": (9, _message(_named(1, _schema))),
    "parameters": (10, _message(_named(1, _parameter))),
}


def encode(document: Json) -> bytes:
    """Returns an OpenAPI v2 document as a gnostic Document."""
    return _encode(document, _DOCUMENT, 16)
