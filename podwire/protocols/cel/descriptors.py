"""Structs as protobuf messages: the only form in which the library's checker knows objects with fields.

Nothing is ever encoded in them: values are plain maps, checking alone sees the messages. What protobuf cannot say
(lists of lists) is checked as `dyn`.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool

from podwire.protocols.cel.types import OPAQUE, Type

_Field = descriptor_pb2.FieldDescriptorProto
_WELL_KNOWN = (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_FILE = "podwire.proto"
OBJECTS = "objects"
"""The package of structs."""

_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "int": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
}
_MESSAGES = {
    "duration": ".google.protobuf.Duration",
    "timestamp": ".google.protobuf.Timestamp",
    **{opaque.name: f".{opaque.name}" for opaque in OPAQUE},
}
_ANYTHING, _ANY_LIST, _ANY_MAP = ".google.protobuf.Value", ".google.protobuf.ListValue", ".google.protobuf.Struct"


def base_pool(opaque_field: str = "") -> DescriptorPool:
    """A pool with the well-known types and the opaque ones, which have a field only where values are made of them."""
    pool = DescriptorPool()
    for well_known in _WELL_KNOWN:
        file = descriptor_pb2.FileDescriptorProto()
        well_known.DESCRIPTOR.CopyToProto(file)
        _add(pool, file)
    for package in sorted({opaque.name.rpartition(".")[0] for opaque in OPAQUE}):
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for opaque in OPAQUE:
            if opaque.name.rpartition(".")[0] == package:
                message = file.message_type.add(name=opaque.name.rpartition(".")[2])
                if opaque_field:
                    message.field.add(name=opaque_field, number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
        _add(pool, file)
    return pool


class Structs:
    """Struct types given names, as messages of one pool."""

    def __init__(self, types: Iterable[Type]) -> None:
        self._names: dict[Type, str] = {}
        self._file = descriptor_pb2.FileDescriptorProto(name=_FILE, package=OBJECTS, syntax="proto2")
        self._file.dependency.extend([well_known.DESCRIPTOR.name for well_known in _WELL_KNOWN])
        self._file.dependency.extend(sorted({f"{opaque.name.rpartition('.')[0]}.proto" for opaque in OPAQUE}))
        for type_ in types:
            self._collect(type_)
        self.pool = base_pool()
        _add(self.pool, self._file)

    def name_of(self, type_: Type) -> str:
        return f"{OBJECTS}.{self._names[_plain(type_)]}"

    def _collect(self, type_: Type) -> None:
        for parameter in type_.parameters:
            self._collect(parameter)
        plain = _plain(type_)
        if type_.name != "object" or plain in self._names:
            return
        self._names[plain] = f"object{len(self._names) or ''}"
        message = self._file.message_type.add(name=self._names[plain])
        message.options.deprecated_legacy_json_field_conflicts = True  # a_b may stand beside aB: nothing becomes JSON
        for number, (name, field_type) in enumerate(type_.fields, start=1):
            self._collect(field_type)
            self._field(message, name, number, field_type)

    def _field(self, message: Any, name: str, number: int, type_: Type) -> None:
        label = _Field.LABEL_OPTIONAL
        if type_.name == "list":
            label, type_ = _Field.LABEL_REPEATED, type_.parameters[0]
            kind, message_name = self._element(type_)
        elif type_.name == "map" and (entry := _entry_name(name)) not in {one.name for one in message.nested_type}:
            label, kind = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
            message_name = self._entry(message, entry, type_.parameters[1])
        else:
            kind, message_name = self._element(type_)
        field = message.field.add(name=name, number=number, type=kind, label=label)
        if message_name:
            field.type_name = message_name

    def _element(self, type_: Type) -> tuple[Any, str]:
        """A value that stands alone, in a list or in a map."""
        if type_.name in _SCALARS:
            return _SCALARS[type_.name], ""
        if type_.name in _MESSAGES:
            return _Field.TYPE_MESSAGE, _MESSAGES[type_.name]
        if type_.name == "object":
            return _Field.TYPE_MESSAGE, f".{self.name_of(type_)}"
        return _Field.TYPE_MESSAGE, {"list": _ANY_LIST, "map": _ANY_MAP}.get(type_.name, _ANYTHING)

    def _entry(self, message: Any, name: str, value: Type) -> str:
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
        kind, message_name = self._element(value)
        field = entry.field.add(name="value", number=2, type=kind, label=_Field.LABEL_OPTIONAL)
        if message_name:
            field.type_name = message_name
        return f".{OBJECTS}.{message.name}.{name}"


def _entry_name(field: str) -> str:
    """The only name that protobuf takes for a map's entries; of two fields for which it is the same, one is loose."""
    return "".join(word[:1].upper() + word[1:] for word in field.split("_")) + "Entry"


def _plain(type_: Type) -> Type:
    return Type(type_.name, fields=type_.fields)


def _add(pool: DescriptorPool, file: descriptor_pb2.FileDescriptorProto) -> None:
    pool.AddSerializedFile(file.SerializeToString())
