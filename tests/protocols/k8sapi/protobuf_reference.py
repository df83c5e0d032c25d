"""Upstream's decoding of a protobuf body, by another implementation: Google's parser with the same messages.

Google's parser keeps a known field with a wrong wire type as an unknown one; Go's generated decoders refuse it, and so
does `reference`. Strings are bytes here: Go does not check them.
"""

import base64
import json
from datetime import UTC, datetime, timedelta

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from podwire.protocols.k8sapi import protobuf
from tests.protocols.k8sapi.protobuf_writer import TABLE

_KIND = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "s": _KIND.TYPE_BYTES,
    "y": _KIND.TYPE_BYTES,
    "i": _KIND.TYPE_INT64,
    "b": _KIND.TYPE_BOOL,
    "d": _KIND.TYPE_DOUBLE,
}
_SPECIAL = {
    "Quantity": (("string", "s"),),
    "Time": (("seconds", "i"), ("nanos", "i")),
    "MicroTime": (("seconds", "i"), ("nanos", "i")),
    "IntOrString": (("type", "i"), ("intVal", "i"), ("strVal", "s")),
    "Raw": (("raw", "y"),),
    "TypeMeta": (("apiVersion", "s"), ("kind", "s")),
    "Envelope": (("typeMeta", "TypeMeta"), ("raw", "y"), ("contentEncoding", "s"), ("contentType", "s")),
}


class Refused(Exception):
    """Upstream refuses the body."""


def reference(data):
    """The object that upstream's decoder finds in a body. Raises Refused."""
    envelope = _parsed("Envelope", data.removeprefix(protobuf.MAGIC))
    type_meta = envelope.typeMeta
    api_version, kind = type_meta.apiVersion.decode(), type_meta.kind.decode()
    name = TABLE.kinds.get((api_version, kind))
    if name is None:
        raise Refused("unknown kind")
    obj = {"apiVersion": api_version, "kind": kind}
    _fill(obj, TABLE.messages[name], _parsed(_flat(name), envelope.raw))
    return obj


def _parsed(name, data):
    message = _class(name)()
    try:
        message.ParseFromString(bytes(data))
    except DecodeError as error:
        raise Refused(str(error)) from None
    _refuse_wrong_wire_types(message)
    return message


def _refuse_wrong_wire_types(message):
    for field in UnknownFieldSet(message):
        if field.field_number in message.DESCRIPTOR.fields_by_number:
            raise Refused(f"wrong wire type for field {field.field_number}")
    for descriptor, value in message.ListFields():
        if descriptor.message_type:
            for inner in value if descriptor.is_repeated else [value]:
                _refuse_wrong_wire_types(inner)


def _fill(out, message, parsed):
    for field in message.parsed():
        descriptor = parsed.DESCRIPTOR.fields_by_number[field.number]
        if field.name == "+":
            _fill(out, TABLE.messages[message.qualified(field.type)], getattr(parsed, descriptor.name))
            continue
        value = getattr(parsed, descriptor.name)
        if field.form == "[]":
            if value:
                out[field.name] = [_value(field.type, message, item) for item in value]
        elif field.form == "{}":
            if value:
                out[field.name] = {entry.key.decode(): _value(field.type, message, entry.value) for entry in value}
        elif parsed.HasField(descriptor.name):
            found = _value(field.type, message, value)
            if found or (field.keep and found is not None):
                out[field.name] = found


def _value(kind, message, value):
    match kind:
        case "s":
            return value.decode()
        case "y":
            return base64.b64encode(value).decode()
        case "i" | "b" | "d":
            return value
        case "Quantity":
            return value.string.decode() if value.HasField("string") else "0"
        case "Time" | "MicroTime":
            return _time(value, micro=kind == "MicroTime")
        case "IntOrString":
            return value.strVal.decode() if value.type else value.intVal
        case "Raw":
            return json.loads(value.raw) if value.HasField("raw") else None
    inner = {}
    _fill(inner, TABLE.messages[message.qualified(kind)], value)
    return inner


def _time(value, *, micro):
    if not value.ListFields():
        return None
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value.seconds)).isoformat()[:19]
    return f"{text}.{value.nanos // 1000:06}Z" if micro else f"{text}Z"


def _flat(name):
    return name.replace(".", "_")


def _file():
    file = descriptor_pb2.FileDescriptorProto(name="reference.proto", package="reference", syntax="proto2")
    for name, fields in _SPECIAL.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            _add(message, number, field, kind, _KIND.LABEL_OPTIONAL)
    for name, table_message in TABLE.messages.items():
        message = file.message_type.add(name=_flat(name))
        for field in table_message.parsed():
            known = field.type in _SCALARS or field.type in _SPECIAL
            kind = field.type if known else _flat(table_message.qualified(field.type))
            label = _KIND.LABEL_REPEATED if field.form else _KIND.LABEL_OPTIONAL
            if field.form == "{}":
                entry = message.nested_type.add(name=f"Entry{field.number}")
                _add(entry, 1, "key", "s", _KIND.LABEL_OPTIONAL)
                _add(entry, 2, "value", kind, _KIND.LABEL_OPTIONAL)
                kind = f"{_flat(name)}.Entry{field.number}"
            _add(message, field.number, f"f{field.number}", kind, label)
    return file


def _add(message, number, name, kind, label):
    field = message.field.add(number=number, name=name, label=label)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _KIND.TYPE_MESSAGE, f".reference.{kind}"


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _class(name):
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"reference.{name}"))
