"""The stored form of an object, and responses made of the stored bytes without decoding them.

Stored bytes are JSON that begins with `{"kind":K,"apiVersion":V,"metadata":{` and carry no resourceVersion: the store's
revision is it. An answer is the same bytes with the revision spliced in behind that constant head, so GET, LIST and
watch cost a copy, not a decode.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.protocols.storage import Item

Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def head(api_version: str, kind: str) -> bytes:
    """Returns the bytes that every stored object of a kind begins with."""
    return b'{"kind":%b,"apiVersion":%b,"metadata":{' % (encode(kind), encode(api_version))


def pack(obj: Mapping[str, Any]) -> bytes:
    """Returns the bytes to store: fixed head first, no resourceVersion."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    ordered = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": metadata}
    for key, value in obj.items():
        if key not in ordered:
            ordered[key] = value
    return encode(ordered)


def unpack(item: Item) -> Object:
    """Returns the object as a client would see it: decoded, with its resourceVersion. A fresh copy every time."""
    obj: Object = _decode(item.value)
    if item.revision:
        obj["metadata"]["resourceVersion"] = str(item.revision)
    return obj


def splice(item_value: bytes, revision: int, stored: bytes, served: bytes) -> bytes:
    """Returns the bytes of a response: the stored head replaced by the served one, followed by the revision.

    A revision of 0 (a dry run) shows none.
    """
    if revision:
        return b'%b"resourceVersion":"%d",%b' % (served, revision, item_value[len(stored) :])
    return served + item_value[len(stored) :]


class _MetadataOnly(msgspec.Struct):
    metadata: msgspec.Raw


_decode_metadata = msgspec.json.Decoder(_MetadataOnly).decode


def metadata_bytes(item_value: bytes, revision: int) -> bytes:
    """Returns the metadata of a stored object as JSON, with its resourceVersion."""
    raw = bytes(_decode_metadata(item_value).metadata)
    return b'{"resourceVersion":"%d",%b' % (revision, raw[1:]) if revision else raw


class _Deletion(msgspec.Struct):
    deletionTimestamp: str | None = None  # noqa: N815 - the name on the wire


class _Deletable(msgspec.Struct):
    metadata: _Deletion


_decode_deletion = msgspec.json.Decoder(_Deletable).decode


def is_being_deleted(item: Item) -> bool:
    """Returns whether a stored object has a deletion timestamp."""
    return _decode_deletion(item.value).metadata.deletionTimestamp is not None


class _Labels(msgspec.Struct):
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct):
    metadata: _Labels


_decode_labels = msgspec.json.Decoder(_Labelled).decode


def labels(item_value: bytes) -> dict[str, str]:
    """Returns the labels of a stored object, at a third of the cost of decoding it."""
    return _decode_labels(item_value).metadata.labels
