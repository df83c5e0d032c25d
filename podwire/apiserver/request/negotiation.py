"""Content negotiation: the object, a Table, or its metadata only."""

import enum
from dataclasses import dataclass
from functools import lru_cache

from podwire.kinds.schema.documents import clauses
from podwire.protocols.k8sapi.status import ApiError, Reason


class Shown(enum.Enum):
    """The form of objects in an answer."""

    OBJECT = enum.auto()
    TABLE = enum.auto()
    METADATA = enum.auto()


@dataclass(frozen=True, slots=True)
class Form:
    """`version` is the meta.k8s.io version of a Table or of metadata."""

    shown: Shown = Shown.OBJECT
    version: str = "v1"


JSON = "application/json"
_SHOWN = {
    "Table": Shown.TABLE,
    "PartialObjectMetadata": Shown.METADATA,
    "PartialObjectMetadataList": Shown.METADATA,
}


@lru_cache(maxsize=256)
def form(accept: str, *, stored: bool = True) -> Form:
    """Returns the first form that the client accepts and this server supports; raises NotAcceptable.

    Kinds that are not stored, such as reviews, have neither tables nor a form with metadata only.
    """
    for clause in clauses(accept):
        if not clause.takes(JSON):
            continue
        parameters = clause.parameters
        if "as" not in parameters:
            return Form()
        shown = _SHOWN.get(parameters["as"])
        version = parameters.get("v", "")
        if stored and shown and parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return Form(shown, version)
    raise ApiError(Reason.NOT_ACCEPTABLE, "only the following media types are accepted: application/json")
