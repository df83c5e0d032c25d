"""The words of a request: which objects, how to patch, how to delete, and what a listing gives."""

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.protocols.k8sapi.client_side.calls import JSON
from podwire.protocols.k8sapi.client_side.watching import named
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

_METADATA_ONLY = "application/json;as={};g=meta.k8s.io;v=v1"


class PatchType(enum.StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(enum.StrEnum):
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The scope of a list or watch: all namespaces or one, all objects or those that the selectors match."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    metadata_only: bool = False

    def query(self, **more: str) -> list[tuple[str, str]]:
        pairs = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector, **more}
        return [(name, value) for name, value in pairs.items() if value]

    def accept(self, as_: str) -> dict[str, str]:
        return {"accept": _METADATA_ONLY.format(as_) if self.metadata_only else JSON}


EVERYWHERE = Scope()


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects that were asked for, and the resourceVersion to watch from."""

    items: Sequence[Object]
    resource_version: str


class Page:
    """A part of a list, whose objects are decoded one by one: a caller that keeps none needs little memory and time."""

    def __init__(self, body: bytes, kind: Kind) -> None:
        """Raises msgspec.DecodeError."""
        document = _decode_page(body)
        self._items = document.items or []
        self._kind = kind
        self.resource_version = document.metadata.resource_version
        self.next = document.metadata.token
        """The token of the next page; '' after the last."""

    def __iter__(self) -> Iterator[Object]:
        """Raises msgspec.DecodeError."""
        for item in self._items:
            yield named(_decode_object(item), self._kind)


class _ListMetadata(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[msgspec.Raw] | None = None


_decode_page = msgspec.json.Decoder(_Page).decode
_decode_object: Callable[[msgspec.Raw], Object] = msgspec.json.Decoder(dict[str, Any]).decode


def write_options(*, field_manager: str = "", force: bool = False, dry_run: bool = False) -> list[tuple[str, str]]:
    pairs = (("fieldManager", field_manager), ("force", "true" if force else ""), ("dryRun", "All" if dry_run else ""))
    return [(name, value) for name, value in pairs if value]


def delete_options(
    grace_seconds: int | None, propagation: Propagation | None, uid: str, resource_version: str
) -> Object:
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if propagation is not None:
        options["propagationPolicy"] = propagation.value
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if given := {name: value for name, value in preconditions.items() if value}:
        options["preconditions"] = given
    return options
