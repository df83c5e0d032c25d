"""Content negotiation: the object, a Table, or its metadata only; in JSON, protobuf or CBOR."""

import enum
from dataclasses import dataclass, replace
from functools import lru_cache

from podwire.kinds.schema.documents import Clause, clauses
from podwire.protocols.k8sapi import cbor
from podwire.protocols.k8sapi.status import ApiError, Reason


class Shown(enum.Enum):
    """The form of objects in an answer."""

    OBJECT = enum.auto()
    TABLE = enum.auto()
    METADATA = enum.auto()


class Encoding(enum.Enum):
    """The encoding of an answer."""

    JSON = enum.auto()
    PROTOBUF = enum.auto()
    CBOR = enum.auto()


@dataclass(frozen=True, slots=True)
class Form:
    """`version` is the meta.k8s.io version of a Table or of metadata."""

    shown: Shown = Shown.OBJECT
    version: str = "v1"
    encoding: Encoding = Encoding.JSON


JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_SHOWN = {
    "Table": Shown.TABLE,
    "PartialObjectMetadata": Shown.METADATA,
    "PartialObjectMetadataList": Shown.METADATA,
}


@lru_cache(maxsize=256)
def encoding(accept: str) -> Encoding:
    """Returns the encoding of an answer: CBOR or JSON, whichever the client prefers, and protobuf for one that accepts
    neither. JSON needs no encoding here, so a client that accepts it beside protobuf gets it."""
    given = clauses(accept)
    for clause in given:
        if clause.media == cbor.MEDIA:
            return Encoding.CBOR
        if clause.takes(JSON):
            return Encoding.JSON
    known = any(_protobuf_form(clause) is not None for clause in given)
    return Encoding.PROTOBUF if known else Encoding.JSON


@lru_cache(maxsize=256)
def form(accept: str, *, stored: bool = True, custom: bool = False) -> Form:
    """Returns the first form that the client accepts and this server supports; raises NotAcceptable.

    Kinds that are not stored, such as reviews, have neither tables nor a form with metadata only; custom ones have no
    protobuf, except for their metadata. Tables have none, as upstream.
    """
    chosen = encoding(accept)
    for clause in clauses(accept):
        if not clause.takes(JSON) and clause.media != cbor.MEDIA:
            continue
        asked = _asked(clause)
        if asked is not None and (stored or asked.shown is Shown.OBJECT):
            return replace(asked, encoding=chosen)
    if chosen is Encoding.PROTOBUF:
        for asked in map(_protobuf_form, clauses(accept)):
            if asked is not None and (not custom if asked.shown is Shown.OBJECT else stored):
                return replace(asked, encoding=chosen)
    raise ApiError(Reason.NOT_ACCEPTABLE, "only the following media types are accepted: application/json")


def _asked(clause: Clause) -> Form | None:
    """Returns the form that a clause asks for; None for one that does not exist."""
    parameters = clause.parameters
    if "as" not in parameters:
        return Form()
    shown, version = _SHOWN.get(parameters["as"]), parameters.get("v", "")
    known = shown and parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1")
    return Form(shown, version) if shown and known else None


def _protobuf_form(clause: Clause) -> Form | None:
    asked = _asked(clause) if clause.media == PROTOBUF else None
    return asked if asked and asked.shown is not Shown.TABLE else None
