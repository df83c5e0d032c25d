"""YAML as kubectl reads it: YAML 1.1 scalars, but what they mean is what comes out as JSON.

`y` and `off` are booleans, `014` is 12, `08` is 8, `1e3` is 1000, `1.0` is 1; dates and `12:30:45` stay strings, keys
become strings. Anchors and merge keys work, but what aliases repeat is counted, so a small text stays a small value.
The events of the parser are put together here, level by level, so no text can exhaust the stack.
"""

import base64
import binascii
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from podwire.protocols.k8sapi.codec import (
    MAX_DEPTH,
    MAX_DUPLICATES,
    MAX_INT,
    MIN_INT,
    BadBody,
    Decoded,
    decode_json,
    survey,
)

MAX_ALIASED = 3 * 1024 * 1024
"""Characters that aliases may add to a document: as many as the largest request body."""

MAX_EVENTS = 200_000
"""Scalars, beginnings and ends that one body may have: a second's work, and as many members as a JSON body may have."""

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
}
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_INT = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}
_MERGE = object()
"""The key `<<` of a mapping."""


def decode_yaml(body: bytes) -> Decoded:
    """The value of a text with one document, or of a JSON text. Raises BadBody."""
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return decode_json(body)
        except BadBody:  # a flow mapping such as {a: 1} begins like JSON
            pass
    documents = _documents(_text(body), MAX_EVENTS)
    document = next(documents, Decoded(None))
    if next(documents, None):
        raise BadBody("expected one YAML document, got more")
    survey(document.value)  # an alias is short, what it stands for need not be
    return document


def load_all(text: str) -> list[Any]:
    """All documents of a manifest or kubeconfig, empty ones left out. Raises BadBody, also for duplicate keys."""
    values = []
    for document in _documents(text):
        if document.duplicates:
            raise BadBody(f'duplicate field "{document.duplicates[0]}"')
        if document.value is not None:
            values.append(document.value)
    return values


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadBody(f"the body is not UTF-8 (byte {error.start})") from None


def _documents(text: str, most_events: float = math.inf) -> Iterator[Decoded]:
    builder = _Builder()
    try:
        for number, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
            if number > most_events:
                raise BadBody(f"the body has more than {most_events} YAML nodes")
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder()
            elif isinstance(event, yaml.DocumentEndEvent):
                yield Decoded(builder.root, builder.duplicates, builder.repeated)
            else:
                builder.feed(event)
    except yaml.YAMLError as error:
        raise BadBody(_describe(error)) from None
    except UnicodeEncodeError:
        raise BadBody("the text holds a lone surrogate") from None


def _describe(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    return f"yaml: line {mark.line + 1}: {problem}" if mark else f"yaml: {problem}"


@dataclass(frozen=True, slots=True)
class _Node:
    """A complete value, how many characters it stands for and how many levels it has."""

    value: Any
    size: int
    height: int = 0


@dataclass(slots=True)
class _Frame:
    """A mapping or sequence that is being read."""

    value: Any
    path: str
    anchor: str | None = None
    size: int = 2
    height: int = 1
    key: Any = None
    has_key: bool = False
    given: set[str] = field(default_factory=set)
    """Keys that the text has itself, as opposed to merged ones: only these can be duplicates."""

    def child_path(self) -> str:
        if isinstance(self.value, list):
            return f"{self.path}[{len(self.value)}]"
        key = "<<" if self.key is _MERGE else self.key
        return f"{self.path}.{key}" if self.path else str(key)


class _Builder:
    """One document, put together from events. An anchor is known once its node is complete: no value holds itself."""

    def __init__(self) -> None:
        self.root: Any = None
        self.duplicates: list[str] = []
        self.repeated: list[str] = []
        self._open: list[_Frame] = []
        self._anchors: dict[str, _Node] = {}
        self._aliased = 0

    def feed(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._begin(event, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self._begin(event, [])
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end()

    def _begin(self, event: yaml.CollectionStartEvent, value: Any) -> None:
        self._check_depth(event, 1)
        parent = self._open[-1] if self._open else None
        if parent and isinstance(parent.value, dict) and not parent.has_key:
            raise BadBody(f"{_line(event)}a key must be a scalar")
        self._open.append(_Frame(value, parent.child_path() if parent else "", event.anchor))

    def _end(self) -> None:
        frame = self._open.pop()
        self._complete(frame.anchor, _Node(frame.value, frame.size, frame.height))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        parent = self._open[-1] if self._open else None
        if parent and isinstance(parent.value, dict) and not parent.has_key:
            self._begin_member(event, parent, _key(event))
            return
        self._complete(event.anchor, _Node(_value(event), len(event.value) + 2))

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            raise BadBody(f"{_line(event)}unknown anchor '{event.anchor}'")
        node = self._anchors[event.anchor]
        self._check_depth(event, node.height)
        self._aliased += node.size
        if self._aliased > MAX_ALIASED:
            raise BadBody(f"{_line(event)}aliases repeat too much")
        parent = self._open[-1] if self._open else None
        if parent and isinstance(parent.value, dict) and not parent.has_key:
            if node.height:
                raise BadBody(f"{_line(event)}a key must be a scalar")
            self._begin_member(event, parent, _as_key(node.value))
            return
        self._put(node)

    def _check_depth(self, event: yaml.Event, height: int) -> None:
        if len(self._open) + height > MAX_DEPTH:
            raise BadBody(f"{_line(event)}the body is nested more than {MAX_DEPTH} levels deep")

    def _begin_member(self, event: yaml.Event, parent: _Frame, key: Any) -> None:
        parent.key, parent.has_key = key, True
        if key is _MERGE:
            return
        parent.size += len(key) + 4
        if key in parent.given and len(self.duplicates) < MAX_DUPLICATES:
            path = parent.child_path()
            if path not in self.duplicates:
                self.duplicates.append(path)
            where = _line(event).removeprefix("yaml: ")
            self.repeated.append(f'{where}key "{key}" already set in map')
        parent.given.add(key)

    def _complete(self, anchor: str | None, node: _Node) -> None:
        if anchor:
            self._anchors[anchor] = node
        self._put(node)

    def _put(self, node: _Node) -> None:
        if not self._open:
            self.root = node.value
            return
        parent = self._open[-1]
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if isinstance(parent.value, list):
            parent.value.append(node.value)
            return
        parent.has_key = False
        if parent.key is _MERGE:
            for base in reversed(_mappings(node.value)):
                parent.value.update(base)
        else:
            parent.value[parent.key] = node.value


def _mappings(value: Any) -> list[dict[str, Any]]:
    """Applies a merge key: a mapping, or several of which the first wins. Keys before it are overwritten,
    keys behind it overwrite: kubectl reads it so."""
    bases = value if isinstance(value, list) else [value]
    if not all(isinstance(base, dict) for base in bases):
        raise BadBody("map merge requires map or sequence of maps as the value")
    return bases


def _key(event: yaml.ScalarEvent) -> Any:
    if event.value == "<<" and event.implicit[0]:
        return _MERGE
    return _as_key(_value(event))


def _as_key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        raise BadBody("a key must not be null")
    return str(value)


def _value(event: yaml.ScalarEvent) -> Any:
    """Resolves a scalar: by its tag; without one a plain scalar is resolved and a quoted one is a string."""
    text: str = event.value
    tag = event.tag.removeprefix(_TAG) if event.tag else ""
    try:
        if tag == "binary":
            return base64.b64decode("".join(text.split()), validate=True).decode()
        if tag in _TYPES:
            value = _resolved(text)
            if type(value) not in _TYPES[tag]:
                raise ValueError(f"cannot decode `{text}` as a !!{tag}")
            return value
        return text if tag or not event.implicit[0] else _resolved(text)
    except (binascii.Error, UnicodeError):
        raise BadBody(f"{_line(event)}!!binary value contains invalid base64 data") from None
    except ValueError as error:
        raise BadBody(f"{_line(event)}{error}") from None


def _resolved(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if not text or text[0] not in "+-.0123456789":
        return text
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"unsupported value: {text}")
    plain = text.replace("_", "")
    if found := _INT.fullmatch(plain):
        return _integer(found[1], found[2])
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if math.isinf(number):  # what no float can hold stays a string
            return text
        # A whole number has no fraction in JSON, so 1.0 is 1
        return int(number) if number.is_integer() and abs(number) <= 2**53 else number
    return text


def _integer(sign: str, digits: str) -> int:
    """Octal is written 014 or 0o14."""
    if len(digits) > 70:  # more than int64 takes even in binary; a longer one would cost quadratic time
        raise ValueError(f"number {sign}{digits[:20]}... does not fit in 64 bits")
    prefixed = digits[0] == "0" and digits[1:2].isdigit()
    number = int(sign + digits, 8 if prefixed else 0)
    if not MIN_INT <= number <= MAX_INT:
        raise ValueError(f"number {sign}{digits} does not fit in 64 bits")
    return number


def _line(event: yaml.Event) -> str:
    mark = event.start_mark
    return f"yaml: line {mark.line + 1}: " if mark else "yaml: "
