"""The sentences of Go's JSON decoder, which users of Kubernetes know by heart."""

import re
from typing import Any

from podwire.kinds.shape import TypeMismatch

_INDEX = re.compile(r"\[\d+\]")
_WORDS: dict[type, str] = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


class Mismatch(TypeMismatch):
    """A value of the wrong JSON type; the structs that it is in tell their names while the error passes them."""

    def __init__(self, value: Any, go_type: str, *, literal: bool = False) -> None:
        super().__init__()
        word = _WORDS.get(type(value), "null")
        self._told = f"{word} {value!r}" if literal and word == "number" else word
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
            return f"json: cannot unmarshal {self._told} into Go value of type {self._go_type}"
        field = f"{self._struct}.{'.'.join(self._fields)}"
        return f"json: cannot unmarshal {self._told} into Go struct field {field} of type {self._go_type}"


def too_deep() -> TypeMismatch:
    return TypeMismatch("exceeded max depth")
