"""Scalar values, checked and put into normal form, with the error texts of Go's JSON decoder."""

import binascii
import re
from collections.abc import Callable
from typing import Any

from podwire.kinds.schema.timestamps import micro_time, time
from podwire.kinds.shape import Field, Report, Shape, TypeMismatch
from podwire.objects.quantity import Quantity

_INDEX = re.compile(r"\[\d+\]")
_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}

Read = Callable[[Any, str, Report], Any]
"""A shape's walk: value, path, report to the value in normal form."""

DEEPEST = 100
"""Levels of nesting that a value of any type may have."""

_DIGITS_OF_BASE64 = re.compile(r"[A-Za-z0-9+/]*")


class Mismatch(TypeMismatch):
    """A value of the wrong JSON type; the enclosing structs add their names while the error passes them."""

    def __init__(self, value: Any, go_type: str, *, literal: bool = False) -> None:
        super().__init__()
        word = _JSON_TYPES.get(type(value), "null")
        self._described = f"{word} {value!r}" if literal and word == "number" else word
        self._go_type = go_type
        self._struct = ""
        self._fields: list[str] = []

    def inside(self, struct: str, field: str) -> None:
        """Called by each struct on the way out: the innermost one is named, the fields make the path."""
        self._struct = self._struct or struct
        self._fields.insert(0, field)

    def under(self, path: str) -> None:
        """The path at which decoding began."""
        if path and self._struct:
            self._fields.insert(0, _INDEX.sub("", path))

    def __str__(self) -> str:
        if not self._struct:
            return f"json: cannot unmarshal {self._described} into Go value of type {self._go_type}"
        field = f"{self._struct}.{'.'.join(self._fields)}"
        return f"json: cannot unmarshal {self._described} into Go struct field {field} of type {self._go_type}"


def too_deep() -> TypeMismatch:
    return TypeMismatch("exceeded max depth")


class Scalar:
    """A value with no members; `zero` is what Go shows for one that was not given."""

    __slots__ = ("go_type", "read", "zero")

    element: Shape | None = None

    def __init__(self, go_type: str, read: Read, zero: Callable[[], Any]) -> None:
        self.go_type = go_type
        self.read = read
        self.zero = zero

    def decode(self, value: Any, path: str, report: Report) -> Any:
        return self.zero() if value is None else self.read(value, path, report)

    def field(self, name: str) -> Field | None:  # noqa: ARG002 - a Shape's signature
        return None


def _string(value: Any, _path: str, _report: Report) -> Any:
    if type(value) is str:
        return value
    raise Mismatch(value, "string")


def _boolean(value: Any, _path: str, _report: Report) -> Any:
    if type(value) is bool:
        return value
    raise Mismatch(value, "bool")


def _integer(bits: int) -> Read:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(value: Any, _path: str, _report: Report) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        raise Mismatch(value, f"int{bits}", literal=True)  # 1.0 too: Go reads digits only

    return read


def _number(value: Any, _path: str, _report: Report) -> Any:
    if type(value) is int:
        return value
    if type(value) is float:
        return int(value) if value.is_integer() and abs(value) < 1e21 else value
    raise Mismatch(value, "float64")


def _int_or_string(value: Any, path: str, report: Report) -> Any:
    return value if type(value) is str else _INT32(value, path, report)


def _quantity(value: Any, _path: str, _report: Report) -> Any:
    kind = type(value)
    text = value if kind is str else repr(value) if kind is int or kind is float else "?"
    try:
        return Quantity.parse(text).canonical()
    except ValueError as error:
        raise TypeMismatch(str(error)) from None


def _bytes(value: Any, _path: str, _report: Report) -> Any:
    """Base64 without line breaks."""
    if type(value) is not str:
        raise Mismatch(value, "[]uint8")
    text = value.replace("\n", "").replace("\r", "")
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise TypeMismatch(f"illegal base64 data at input byte {_illegal_byte(text)}") from None
    return binascii.b2a_base64(content, newline=False).decode("ascii")


def _illegal_byte(text: str) -> int:
    """Returns the offset of the first byte that is not base64."""
    digits = _DIGITS_OF_BASE64.match(text)
    end = digits.end() if digits else 0
    whole = end - end % 4
    if end == len(text):
        return whole
    padding = text[end : whole + 4]
    complete = end - whole >= 2 and padding == "=" * (whole + 4 - end)
    return whole + 4 if complete else end


def _time(value: Any, _path: str, _report: Report) -> Any:
    if type(value) is not str:
        raise Mismatch(value, "string")
    return time(value)


def _micro_time(value: Any, _path: str, _report: Report) -> Any:
    if type(value) is not str:
        raise Mismatch(value, "string")
    return micro_time(value)


def _anything(value: Any, _path: str, _report: Report) -> Any:
    refuse_depth(value)
    return value


def refuse_depth(value: Any, limit: int = DEEPEST) -> None:
    """Raise TypeMismatch if lists and objects nest deeper than `limit`; level by level, so that nothing overflows."""
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(limit):
        if not level:
            return
        level = [
            inner
            for holder in level
            for inner in (holder.values() if type(holder) is dict else holder)
            if type(inner) is dict or type(inner) is list
        ]
    raise too_deep()


def _none() -> None:
    return None


_INT32 = _integer(32)
STRING = Scalar("string", _string, str)
BOOLEAN = Scalar("bool", _boolean, bool)
INT32 = Scalar("int32", _INT32, int)
INT64 = Scalar("int64", _integer(64), int)
NUMBER = Scalar("float64", _number, int)
BYTES = Scalar("[]uint8", _bytes, str)
QUANTITY = Scalar("resource.Quantity", _quantity, lambda: "0")
INT_OR_STRING = Scalar("intstr.IntOrString", _int_or_string, int)
TIME = Scalar("v1.Time", _time, _none)
MICRO_TIME = Scalar("v1.MicroTime", _micro_time, _none)
ANYTHING = Scalar("runtime.RawExtension", _anything, _none)
