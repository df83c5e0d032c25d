"""JSON for both sides: one strict decoder for everything on the wire.

    BadBody        a body that is not what its Content-Type says: malformed, too deep, a number out of range

Strict means: UTF-8 only, no NaN or Infinity, no lone surrogates, integers in int64, bounded depth and number of parts.
A duplicate key is not an error here (the last one wins); it is reported, because `fieldValidation` decides its meaning.
"""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

MAX_DEPTH = 100
"""Levels of objects and lists. The deepest built-in kinds need about forty; code after us may recurse safely."""
MOST_CONTAINERS = 50_000
"""Objects and lists in one body. Three bytes are enough for one, and each may cost a kilobyte and the time of many
rules: a body of the largest size would keep the server busy for half a minute."""
MOST_MEMBERS = 100_000
"""Members of all objects in one body: more than fit into a stored object with its managedFields."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
CONTAINERS = "objects and lists"
MIN_INT, MAX_INT = -(2**63), 2**63 - 1
MAX_DUPLICATES = 100
"""Upstream stops counting here too."""


class BadBody(Exception):
    """A body that cannot be decoded; the message says why, and where."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Decoded(msgspec.Struct, frozen=True):
    """A decoded body, and the paths of keys that were given more than once (`spec.containers[0].image`)."""

    value: Any
    duplicates: list[str] = []
    repeated: list[str] = []
    """The same in the words of Go's YAML decoder, for a YAML text."""


def decode_json(body: bytes, *, max_depth: int = MAX_DEPTH) -> Decoded:
    """The value of a JSON text. Raises BadBody."""
    _check_size(body)
    try:
        value = msgspec.json.decode(body)
    except UnicodeDecodeError:
        raise BadBody(_where_not_utf8(body)) from None
    except RecursionError:
        raise BadBody(_too_deep(max_depth)) from None
    except msgspec.DecodeError as error:
        raise BadBody(str(error)) from None
    if _most_members(body) == survey(value, max_depth):
        return Decoded(value)
    return Decoded(value, _duplicates(body))


def _check_size(body: bytes) -> None:
    """Refuses a body with too many parts before they are created: a million take 200 ms at a stretch.

    What looks like too many may be inside of strings. These are skipped one by one: other threads run meanwhile.
    """
    if body.count(b"{") + body.count(b"[") <= MOST_CONTAINERS and body.count(b":") <= MOST_MEMBERS:
        return
    containers = members = last = 0
    for string in itertools.chain(_STRING.finditer(body), (None,)):
        between = body[last : string.start() if string else len(body)]
        containers += between.count(b"{") + between.count(b"[")
        members += between.count(b":")
        if containers > MOST_CONTAINERS:
            raise BadBody(too_many(MOST_CONTAINERS, CONTAINERS))
        if members > MOST_MEMBERS:
            raise BadBody(too_many(MOST_MEMBERS, "members"))
        last = string.end() if string else last


def survey(value: Any, max_depth: int = MAX_DEPTH) -> int:
    """How many members all objects have together. Raises BadBody for what is too deep, too much or out of range.

    Level by level, so that no input can exhaust the stack.
    """
    members = depth = containers = 0
    level: list[Any] = [[value]]
    while level:
        if depth > max_depth:
            raise BadBody(_too_deep(max_depth))
        depth += 1
        below: list[Any] = []
        for node in level:
            if type(node) is dict:
                members += len(node)
                values: Any = node.values()
            else:
                values = node
            for item in values:
                kind = type(item)
                if kind is str:
                    continue
                if kind is dict or kind is list:
                    below.append(item)
                elif kind is int and not MIN_INT <= item <= MAX_INT:
                    raise BadBody(f"number {item} does not fit in 64 bits")
        containers += len(below)
        if containers > MOST_CONTAINERS:
            raise BadBody(too_many(MOST_CONTAINERS, CONTAINERS))
        level = below
    return members


def _most_members(body: bytes) -> int:
    """How many members the text can have at most; equality with what was decoded proves that no key came twice.

    Every member has one colon behind its key: after the closing quote or after whitespace. A quote behind a backslash
    closes nothing unless the backslash is itself escaped. What is counted in excess (colons in strings) only costs
    the slow pass.
    """
    quoted = body.count(b'":') - body.count(b'\\":') + body.count(b'\\\\":')
    return quoted + body.count(b" :") + body.count(b"\n:") + body.count(b"\t:") + body.count(b"\r:")


def _duplicates(body: bytes) -> list[str]:
    """The paths of repeated keys, in the order of the text."""
    found: dict[str, None] = {}
    tree = json.loads(body.decode(), object_pairs_hook=_pairs)  # objects are tuples of pairs, lists stay lists
    for path in _repeated(tree, ""):
        found[path] = None
        if len(found) == MAX_DUPLICATES:
            break
    return list(found)


def _pairs(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """A Python function, and not the type itself: other threads get their turn between two objects."""
    return tuple(pairs)


def _repeated(tree: Any, path: str) -> Iterator[str]:
    if type(tree) is list:
        for index, item in enumerate(tree):
            yield from _repeated(item, f"{path}[{index}]")
    elif type(tree) is tuple:
        seen: set[str] = set()
        for key, value in tree:
            here = f"{path}.{key}" if path else key
            if key in seen:
                yield here
            seen.add(key)
            yield from _repeated(value, here)


def _where_not_utf8(body: bytes) -> str:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"the body is not UTF-8 (byte {error.start})"
    return "the body is not UTF-8"


def too_many(most: int, parts: str) -> str:
    return f"the body has more than {most} {parts}"


def _too_deep(max_depth: int) -> str:
    return f"the body is nested more than {max_depth} levels deep"
