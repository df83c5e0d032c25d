"""`shardSelector` of list and watch: the part of a collection whose uid or namespace has a hash in some ranges.

    shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || shardRange(…)

The hash is 64-bit FNV-1a; a range ends before its second number, which may be 2^64. The expression is CEL of which only
this function and `||` exist.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from podwire.apiserver.read.fields import field_of
from podwire.kinds.resource import Resource
from podwire.kinds.strategy import SelectableField
from podwire.protocols.k8sapi.status import ApiError, bad_request
from podwire.protocols.storage import Field

MOST_RANGES = 1000
_END = 1 << 64
_FIELDS = {
    "object.metadata.uid": SelectableField("metadata.uid", ("metadata", "uid")),
    "object.metadata.namespace": SelectableField("metadata.namespace", ("metadata", "namespace")),
}
_CALL = re.compile(r"\s*(?P<function>[A-Za-z_]\w*)\s*\((?P<arguments>[^()]*)\)\s*")
_PATH = re.compile(r"[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*")
_TEXT = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")


@dataclass(frozen=True, slots=True)
class Shard:
    """Ranges of hashes of one field."""

    field: Field
    path: str
    ranges: tuple[tuple[int, int], ...]

    def accepts(self, text: str) -> bool:
        number = hash_of(text)
        return any(start <= number < end for start, end in self.ranges)

    def __str__(self) -> str:
        return " || ".join(f"shardRange({self.path}, '0x{start:016x}', '0x{end:016x}')" for start, end in self.ranges)


@lru_cache(maxsize=4096)
def hash_of(text: str) -> int:
    """Returns the 64-bit FNV-1a hash of a text."""
    number = 0xCBF29CE484222325
    for byte in text.encode():
        number = (number ^ byte) * 0x100000001B3 % _END
    return number


def parse(text: str, resource: Resource) -> Shard:
    """Returns the shard of an expression; 400 for an invalid one."""
    path, ranges, at = "", [], 0
    while True:
        call = _CALL.match(text, at)
        if call is None:
            raise _invalid("expected shardRange() calls, combined by ||")
        if call["function"] != "shardRange":
            raise _invalid(f'unsupported function "{call["function"]}"; only shardRange() and || are allowed')
        field, start, end = _arguments(call["arguments"])
        if path and field != path:
            raise _invalid(f'all shard ranges must use the same field, got "{path}" and "{field}"')
        path = field
        ranges.append((start, end))
        at = call.end()
        if at == len(text):
            break
        if not text.startswith("||", at) or len(ranges) == MOST_RANGES:
            raise _invalid(f"expected at most {MOST_RANGES} shardRange() calls, combined by ||")
        at += 2
    return Shard(field_of(resource, _FIELDS[path]), path, tuple(ranges))


def _arguments(text: str) -> tuple[str, int, int]:
    arguments = [argument.strip() for argument in text.split(",")]
    if len(arguments) != 3:
        raise _invalid(f"shardRange() requires exactly 3 arguments, got {len(arguments)}")
    if not _PATH.fullmatch(arguments[0]):
        raise _invalid("shardRange() first argument: expected field path (e.g. object.metadata.uid)")
    path = "".join(arguments[0].split())
    if path not in _FIELDS:
        raise _invalid(f'unsupported field path "{path}"; supported: {", ".join(_FIELDS)}')
    start, end = _number("hexStart", arguments[1]), _number("hexEnd", arguments[2])
    if start >= end:
        raise _invalid(f"shard range start 0x{start:016x} must be less than end 0x{end:016x}")
    return path, start, end


def _number(name: str, argument: str) -> int:
    literal = _TEXT.fullmatch(argument)
    if literal is None:
        raise _invalid(f"{name} must be a string literal (e.g. '0xff')")
    text = literal[1] or literal[2] or ""
    if not text.startswith("0x"):
        raise _invalid(f"{name} must have '0x' prefix, got \"{text}\"")
    digits = text[2:]
    if not re.fullmatch("[0-9a-f]+", digits) or len(digits) > 17 or (len(digits) == 17 and int(digits, 16) != _END):
        raise _invalid(f'{name} must be a 0x-prefixed 16-digit hex value or 0x10000000000000000, got "{text}"')
    if len(digits) < 16:
        meant = f"0x{digits:0>16}"
        raise _invalid(f'{name} must be a 0x-prefixed 16-digit hex value, got "{text}" (did you mean "{meant}"?)')
    return int(digits, 16)


def _invalid(why: str) -> ApiError:
    return bad_request(f"invalid shard selector: {why}")
