"""CBOR (RFC 8949) as Kubernetes writes it: another form of the JSON value of an object.

| | written | read |
|---|---|---|
| a body | behind the tag of self-described CBOR (0xd9d9f7) | with and without it |
| text, keys | byte strings | byte strings and text strings, UTF-8 only |
| bytes (base64 in JSON) | that text, as a byte string | that text, or bytes behind tag 22 (21: base64url, 23: hex) |
| times | text | text, or tag 0 or 1 |
| numbers | integers and floats as they are | int64; finite floats; no tags of larger numbers |

Other tags are ignored, as upstream does. A key that is given twice is an error and not a warning: CBOR forbids it.
"""

import base64
import io
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

import cbor2

from podwire.protocols.k8sapi.codec import (
    CONTAINERS,
    MAX_DEPTH,
    MOST_CONTAINERS,
    MOST_MEMBERS,
    BadBody,
    survey,
    too_many,
)

MEDIA = "application/cbor"
SEQUENCE = "application/cbor-seq"
SELF_DESCRIBED = b"\xd9\xd9\xf7"

_BYTES, _TEXT, _ARRAY, _MAP = 2, 3, 4, 5
_INDEFINITE = 31


def encode(value: Any) -> bytes:
    """Returns a JSON value as a body."""
    return SELF_DESCRIBED + cbor2.dumps(_written(value))


def encode_item(value: Any) -> bytes:
    """Returns a JSON value as it is within a list."""
    return cbor2.dumps(_written(value))


def list_head(kind: str, api_version: str, metadata: Mapping[str, Any], count: int) -> bytes:
    """Returns the beginning of a list, behind which come so many items."""
    beginning = {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": [None] * count}
    return encode(beginning)[: -count or None]


def decode(body: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """Returns the JSON value of a body. Raises BadBody."""
    if len(body) > MOST_CONTAINERS:
        _check_size(body)
    stream = io.BytesIO(body)
    try:
        decoder = cbor2.CBORDecoder(
            stream,
            tag_hook=_tagged,
            semantic_decoders=_TAGS,
            max_depth=max_depth + len(SELF_DESCRIBED),
            allow_duplicate_keys=False,
            strict_hashable_types=True,
        )
        value = _plain(decoder.decode())
    except cbor2.CBORDecodeError as error:
        raise BadBody(f"the body is not valid CBOR: {error.__cause__ or error}") from None
    if stream.tell() != len(body):
        raise BadBody(f"the body has {len(body) - stream.tell()} bytes behind its CBOR data item")
    survey(value, max_depth)
    return value


def _written(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value.encode()
    if kind is dict:
        return {key.encode(): _written(member) for key, member in value.items()}
    if kind is list:
        return [_written(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """Returns what was decoded as a JSON value; the decoder has bounded its depth."""
    kind = type(value)
    if kind is bytes or kind is str:
        return _text(value)
    if kind is dict:
        members = {_text(key): _plain(member) for key, member in value.items()}
        if len(members) != len(value):
            raise BadBody("the body is not valid CBOR: a map has a key as text and as bytes")
        return members
    if kind is list:
        return [_plain(item) for item in value]
    if kind is float and not math.isfinite(value):
        raise BadBody("the body is not valid CBOR: a number must be finite")
    if value is not None and kind not in (bool, int, float):
        raise BadBody(f"the body is not valid CBOR: a value of the type {kind.__name__} has no JSON form")
    return value


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is not bytes:
        raise BadBody("the body is not valid CBOR: a key must be a string")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadBody("the body is not valid CBOR: a string is not UTF-8; bytes need tag 22") from None


def _tagged(tag: cbor2.CBORTag, _immutable: bool) -> Any:
    """Returns the content of a tag: bytes in the encoding that they are to have in JSON, everything else as it is."""
    as_text = _ENCODINGS.get(tag.tag)
    return as_text(tag.value).decode() if as_text and type(tag.value) is bytes else tag.value


_ENCODINGS: Mapping[int, Callable[[bytes], bytes]] = {
    21: lambda content: base64.urlsafe_b64encode(content).rstrip(b"="),
    22: base64.b64encode,
    23: base64.b16encode,
}


def _content(value: Any, _immutable: bool) -> Any:
    return value


def _moment(value: Any, _immutable: bool) -> str:
    """Returns seconds since 1970 as the text of a time."""
    try:
        return datetime.fromtimestamp(value, UTC).isoformat().replace("+00:00", "Z")
    except (TypeError, ValueError, OverflowError, OSError):
        raise BadBody("tag 1 must contain a time in seconds") from None


def _refused(number: int, _value: Any, _immutable: bool) -> NoReturn:
    raise BadBody(f"tag {number} is not supported")


_IGNORED = (0, 4, 5, 30, 35, 36, 37, 43, 52, 54, 100, 258, 260, 261, 1004, 43000, 55799)
"""Tags that the library would give a meaning; the self-described one among them."""
_UNSUPPORTED = (2, 3, 25, 28, 29, 256)
"""Large numbers, and references to values of the body: a cycle has no end, and a small body could be a large one."""
_TAGS: Mapping[int, Callable[[Any, bool], Any]] = {
    **dict.fromkeys(_IGNORED, _content),
    **{number: partial(_refused, number) for number in _UNSUPPORTED},
    1: _moment,
}


def _check_size(body: bytes) -> None:
    """Refuses a body with too many parts before they are created, by reading the heads of all data items."""
    containers = members = items = at = 0
    unknown = False
    while at < len(body):
        major, info = body[at] >> 5, body[at] & 31
        at += 1
        items += 1
        argument = info
        if 24 <= info <= 27:
            width = 1 << (info - 24)
            argument = int.from_bytes(body[at : at + width], "big")
            at += width
        if major in (_BYTES, _TEXT) and info != _INDEFINITE:
            at += argument
        elif major in (_ARRAY, _MAP):
            containers += 1
            if major == _MAP:
                unknown = unknown or info == _INDEFINITE
                members += argument if info != _INDEFINITE else 0
        if containers > MOST_CONTAINERS:
            raise BadBody(too_many(MOST_CONTAINERS, CONTAINERS))
        if members > MOST_MEMBERS or (unknown and items > 2 * MOST_MEMBERS):
            raise BadBody(too_many(MOST_MEMBERS, "members"))
