"""Messages of NRI as people write them: names as in nri.proto, and values that may be unset without a box around them.

    linux: {resources: {memory: {limit: 1073741824}}}     OptionalInt64 is its value
    env: {COLOR: blue}                                      a list of KeyValue is a mapping, or a list of them
    CDI_devices: [vendor.example/net=dev0]                  a CDIDevice is its name

`message_at` reads the output of `to_plain`.
"""

from collections.abc import Container
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from podwire.nri.script.nodes import At

Of = TypeVar("Of", bound=Message)

_ALONE = {"CDIDevice": "name"}
"""Messages that are written as their one field."""
_OPTIONAL = "Optional"


def to_plain(message: Message) -> dict[str, Any]:
    """The fields that are set; numbers as numbers, enums by name."""
    return {field.name: _plain_field(field, value) for field, value in message.ListFields()}


def _plain_field(field: FieldDescriptor, value: Any) -> Any:
    if _is_map(field):
        inner = _message_of(field).fields_by_name["value"]
        return {str(key): _plain_value(inner, value[key]) for key in sorted(value)}
    if field.is_repeated:
        if _is_pairs(field) and len({pair.key for pair in value}) == len(value):
            return {pair.key: pair.value for pair in value}
        return [_plain_value(field, item) for item in value]
    return _plain_value(field, value)


def _plain_value(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = _enum(field).values_by_number.get(value)
        return known.name if known else int(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return value.hex()
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return value
    if (alone := _alone(_message_of(field))) is not None:
        inner = getattr(value, alone)
        return list(inner) if _message_of(field).fields_by_name[alone].is_repeated else inner
    return to_plain(value)


def message_at(at: At, kind: type[Of], beside: Container[str] = ()) -> Of:
    """The message that a script writes. Keys `beside` its fields are the caller's. Raises BadScript."""
    fields = _fields(at, kind.DESCRIPTOR, beside)
    try:
        return ParseDict(fields, kind())
    except ParseError as error:
        raise at.fail(str(error)) from None


def _fields(at: At, kind: Any, beside: Container[str] = ()) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in at.mapping().items():
        if name in beside:
            continue
        field = kind.fields_by_name.get(name) or kind.fields_by_camelcase_name.get(name)
        if field is None:
            known = ", ".join(known_field.name for known_field in kind.fields)
            raise value.fail(f"{kind.name} has no such field; it has {known}")
        values[field.name] = _field(value, field)
    return values


def _field(at: At, field: FieldDescriptor) -> Any:
    if _is_map(field):
        inner = _message_of(field).fields_by_name["value"]
        return {key: _value(value, inner) for key, value in at.mapping().items()}
    if not field.is_repeated:
        return _value(at, field)
    if _is_pairs(field) and at.is_mapping:
        return [{"key": key, "value": value.text()} for key, value in at.mapping().items()]
    return [_value(item, field) for item in at.items()]


def _value(at: At, field: FieldDescriptor) -> Any:
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return _scalar(at, field)
    kind = _message_of(field)
    alone = _alone(kind)
    if alone is not None and not at.is_mapping:
        return {alone: _field(at, kind.fields_by_name[alone])}
    return _fields(at, kind)


_INTEGERS = frozenset(
    {
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_UINT64,
    }
)


def _scalar(at: At, field: FieldDescriptor) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return at.text()
        case FieldDescriptor.TYPE_BOOL:
            return at.truth()
        case FieldDescriptor.TYPE_ENUM:
            names = {known.name: known.name for known in _enum(field).values}
            value = at.value()
            return value if isinstance(value, int) else at.one_of(names)
        case kind if kind in _INTEGERS:
            number = at.number()
            unsigned = kind in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64)
            bits = 32 if kind in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_INT32) else 64
            lowest, highest = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            if not lowest <= number <= highest:
                raise at.fail(f"{number} is not between {lowest} and {highest}")
            return number
    return at.value()


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_pairs(field: FieldDescriptor) -> bool:
    return field.is_repeated and field.message_type is not None and field.message_type.name == "KeyValue"


def _alone(kind: Descriptor) -> str | None:
    """The one field that a message is written as."""
    return "value" if kind.name.startswith(_OPTIONAL) else _ALONE.get(kind.name)


def _message_of(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None  # noqa: S101 - implied by the field's type
    return field.message_type


def _enum(field: FieldDescriptor) -> Any:
    return field.enum_type
