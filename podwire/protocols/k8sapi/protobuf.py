"""Kubernetes' protobuf bodies, decoded into the same values as JSON bodies; protobuf_writer.py writes them.

A body is the four bytes `k8s\\0` and an envelope that names apiVersion and kind around the object's own message. What
messages mean is a table, wire.txt; each is compiled into functions, one per field, when it is first met.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from podwire.protocols.k8sapi import protowire
from podwire.protocols.k8sapi.codec import MAX_DEPTH, BadBody, survey
from podwire.protocols.k8sapi.protowire import FIXED64, SIZED, VARINT, Convert, Entry, Fields, Object, Read, Store, fill

MAGIC = b"k8s\x00"

_EVERYWHERE = ("DeleteOptions", "Status")
"""Kinds of meta.v1 that every API version knows."""
_NUMBERS: dict[str, tuple[int, Convert]] = {
    "i": (VARINT, protowire.integer),
    "b": (VARINT, bool),
    "d": (FIXED64, protowire.double),
}
_VALUES: dict[str, Read] = {
    "s": protowire.text,
    "y": protowire.base64_text,
    "Quantity": protowire.quantity,
    "Time": protowire.time,
    "MicroTime": protowire.micro_time,
    "IntOrString": protowire.int_or_string,
    "Raw": protowire.raw,
}
_ITSELF = "="
"""The name of a field whose value stands for its whole message. Of several such fields the one with the highest
number counts, as in upstream's JSON: a list of schemas before one schema, a schema before a boolean."""


def decode(body: bytes) -> Object:
    """The object that a body holds, with apiVersion and kind. Raises BadBody."""
    if not body.startswith(MAGIC):
        raise BadBody("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    envelope: Object = {}
    try:
        fill(envelope, _ENVELOPE, body, len(MAGIC), len(body), MAX_DEPTH)
        for name in ("contentEncoding", "contentType"):
            if name in envelope:
                raise BadBody(f"protobuf envelope: {name} {envelope[name]!r} is not supported")
        obj: Object = {"apiVersion": envelope.get("apiVersion", ""), "kind": envelope.get("kind", "")}
        start, stop = envelope.get("raw", (0, 0))
        fill(obj, _message(obj["apiVersion"], obj["kind"]).fields, body, start, stop, MAX_DEPTH)
    except IndexError:
        raise BadBody("the protobuf message ends in the middle of a field") from None
    except UnicodeDecodeError:
        raise BadBody("a string in the protobuf message is not UTF-8") from None
    survey(obj)
    return obj


def _message(api_version: str, kind: str) -> "Message":
    table = load_table()
    name = table.kinds.get((api_version, kind))
    if name is None and kind in _EVERYWHERE:
        name = f"meta.v1.{kind}"
    if name is None:
        raise BadBody(f'no kind "{kind}" is registered for version "{api_version}"')
    return table.messages[name]


def _span(out: Object, _buffer: bytes, start: int, stop: int, _levels: int) -> None:
    out["raw"] = (start, stop)


_TYPE_META = Fields(
    "TypeMeta",
    (1, SIZED, "apiVersion", protowire.single_text("apiVersion", keep=False)),
    (2, SIZED, "kind", protowire.single_text("kind", keep=False)),
)
_ENVELOPE = Fields(
    "Unknown",
    (1, SIZED, "typeMeta", protowire.inlined(lambda: _TYPE_META)),
    (2, SIZED, "raw", _span),
    (3, SIZED, "contentEncoding", protowire.single_text("contentEncoding", keep=False)),
    (4, SIZED, "contentType", protowire.single_text("contentType", keep=False)),
)


@dataclass(frozen=True, slots=True)
class Field:
    """One entry of the table: `7 nodeSelector s{}`. `keep`: an empty value was meant."""

    number: int
    name: str
    type: str
    form: str = ""
    """`[]` for a list, `{}` for a map."""
    keep: bool = True


@dataclass(slots=True)
class Message:
    """A message by its text in the table, compiled when it is first read."""

    package: str
    name: str
    text: str
    _fields: Fields | None = None

    @property
    def fields(self) -> Fields:
        if self._fields is None:
            self._fields = Fields(self.name, *_compiled(self))
        return self._fields

    def parsed(self) -> Iterator[Field]:
        for entry in filter(None, self.text.split(", ")):
            number, name, token = entry.split()
            plain = token.removesuffix("?")
            form = plain[-2:] if plain.endswith(("[]", "{}")) else ""
            yield Field(int(number), name, plain.removesuffix(form), form, keep=plain == token)

    @property
    def is_value(self) -> bool:
        """Whether the value of one of the fields stands for the whole message."""
        return f" {_ITSELF} " in self.text

    def qualified(self, name: str) -> str:
        """The full name of a message that this one names: its own package's, or `package.Name` of version v1."""
        package, _, local = name.rpartition(".")
        return f"{package}.v1.{local}" if package else f"{self.package}.{local}"


@dataclass(frozen=True, slots=True)
class Table:
    messages: dict[str, Message] = field(default_factory=dict)
    """By package and name: core.v1.Pod."""
    kinds: dict[tuple[str, str], str] = field(default_factory=dict)
    """apiVersion and kind to the message's name."""


@functools.cache
def load_table() -> Table:
    """wire.txt by lines; what a line says is read when the message is needed."""
    source = Path(__file__).with_name("wire.txt").read_text(encoding="utf-8")
    table = Table()
    package = api_version = ""
    for line in source.replace("\n  ", " ").splitlines():
        if line.startswith("["):
            package, _, api_version = line.strip("[]").partition(" ")
        elif line and not line.startswith("#"):
            name, _, text = line.partition(":")
            if name.startswith("*"):
                name = name.removeprefix("*")
                table.kinds[api_version, name] = f"{package}.{name}"
            table.messages[f"{package}.{name}"] = Message(package, name, text.strip())
    return table


def _compiled(message: Message) -> Iterator[Entry]:
    for parsed in message.parsed():
        field = replace(parsed, name=f"{_ITSELF}{parsed.number}") if parsed.name == _ITSELF else parsed
        if field.type in _NUMBERS:
            yield from _number_stores(field)
        else:
            yield field.number, SIZED, field.name, _store(message, field)


def _number_stores(field: Field) -> Iterator[Entry]:
    """A list of numbers comes packed or one by one, as the writer likes."""
    wire, convert = _NUMBERS[field.type]
    if field.form:
        yield field.number, wire, field.name, protowire.number_listed(field.name, convert)
        yield field.number, SIZED, field.name, protowire.numbers_packed(field.name, convert)
    else:
        yield field.number, wire, field.name, protowire.number(field.name, convert, keep=field.keep)


def _store(message: Message, field: Field) -> Store:
    read = _VALUES.get(field.type)
    if read is None:
        inner = load_table().messages[message.qualified(field.type)]
        if field.name == "+":
            return protowire.inlined(lambda: inner.fields)
        if not field.form and not inner.is_value:
            return protowire.single_message(field.name, lambda: inner.fields, keep=field.keep)
        read = _reader(inner)
    if field.form == "[]":
        return protowire.listed(field.name, read)
    if field.form == "{}":
        return protowire.mapped(field.name, read)
    if field.type == "s":
        return protowire.single_text(field.name, keep=field.keep)
    return protowire.single(field.name, read, keep=field.keep)


def _reader(message: Message) -> Read:
    """An object, or the value that stands for it."""
    if message.is_value:

        def read_value(buffer: bytes, start: int, stop: int, levels: int) -> object:
            inner: Object = {}
            fill(inner, message.fields, buffer, start, stop, levels + 1)
            return inner[max(inner)] if inner else None

        return read_value

    def read_object(buffer: bytes, start: int, stop: int, levels: int) -> Object:
        value: Object = {}
        fill(value, message.fields, buffer, start, stop, levels)
        return value

    return read_object
