"""Words and numbers that turn up in many fields. Each raises BadAdjustment."""

import re
from collections.abc import Iterator
from typing import Any

from podwire.protocols.nri.errors import BadAdjustment

UNLIMITED = -1
_RANGE = r"[0-9]+(-[0-9]+(:[0-9]+/[0-9]+)?)?"
_LIST = re.compile(rf"{_RANGE}(,{_RANGE})*")


def need(fine: object, field: str, reason: str) -> None:
    if not fine:
        raise BadAdjustment(field, reason)


def absolute(path: str, field: str) -> None:
    need(path, field, "is empty")
    need(path.startswith("/"), field, f"{path!r} is not an absolute path")
    without_dots(path, field)


def without_dots(path: str, field: str) -> None:
    need(".." not in path.split("/"), field, f"{path!r} must not contain '..'")


def number_list(text: str, field: str) -> None:
    """CPUs or memory nodes: 0-3,5. Nothing says nothing."""
    need(not text or _LIST.fullmatch(text), field, f"{text!r} is not a list of numbers such as 0-3,5")


def size(value: int, field: str) -> None:
    need(value >= UNLIMITED, field, f"{value} is negative; {UNLIMITED} is for unlimited")


def between(value: int, low: int, high: int, field: str) -> None:
    need(low <= value <= high, field, f"{value} is not between {low} and {high}")


def known(value: int, kind: Any, field: str) -> None:
    """An enum's number; any number can travel."""
    need(value in kind.values(), field, f"{value} is not known")


def once(names: list[str], field: str, attribute: str) -> None:
    """In one answer, nothing is decided twice."""
    seen: set[str] = set()
    for number, name in enumerate(names):
        need(name not in seen, f"{field}[{number}].{attribute}", f"{name!r} is given twice")
        seen.add(name)


def without_zero_bytes(message: Any, field: str) -> None:
    """No string of the kernel can hold one."""
    if b"\x00" not in message.SerializeToString():  # few answers have one anywhere, so few are looked through
        return
    for path, text in _strings(message, field):
        need("\x00" not in text, path, "contains a zero byte")


def _strings(value: Any, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif hasattr(value, "ListFields"):
        for descriptor, value_ in value.ListFields():
            yield from _strings(value_, f"{field}.{descriptor.name}")
    elif hasattr(value, "items"):
        for key in value:
            yield from ((f"{field}[{key!r}]", key), *_strings(value[key], f"{field}[{key!r}]"))
    elif not isinstance(value, (int, bytes)):
        for number, item in enumerate(value):
            yield from _strings(item, f"{field}[{number}]")
