"""What controllers remember of every object: its metadata, as far as they decide on it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.protocols.k8sapi.kinds import Kind

_PODS, _CLAIMS = ("", "pods"), ("resource.k8s.io", "resourceclaims")
_FINISHED = ("Succeeded", "Failed")

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""Finalizers by which the API server asks the garbage collector for something before an owner goes."""


class Owner(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An owner reference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[Owner, ...] = ()


class _Object(msgspec.Struct):
    metadata: Metadata


class _PodSpec(msgspec.Struct, rename="camel"):
    resource_claims: tuple[msgspec.Raw, ...] = ()
    node_name: str = ""


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Holder(msgspec.Struct):
    uid: str = ""


class _ClaimStatus(msgspec.Struct, rename="camel"):
    reserved_for: tuple[_Holder, ...] = ()


class _Claim(msgspec.Struct):
    metadata: Metadata
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


@dataclass(frozen=True, slots=True)
class Seen:
    """One object as last seen."""

    kind: Kind
    metadata: Metadata
    claims: bool | None = None
    """Whether a pod asks for devices, which it does from its beginning or never; None if that was not seen."""
    on_node: bool = False
    """Whether a pod is bound, and not finished."""
    holders: frozenset[str] | None = None
    """Who has a claim for devices, by uid; None if that was not seen."""

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def resource(self) -> tuple[str, str]:
        return resource_of(self.kind)

    @property
    def owners(self) -> tuple[Owner, ...]:
        return self.metadata.owner_references

    @property
    def deleting(self) -> bool:
        return bool(self.metadata.deletion_timestamp)

    @property
    def waiting(self) -> bool:
        """Being deleted once its blocking dependents are gone."""
        return self.deleting and FOREGROUND in self.metadata.finalizers

    @property
    def orphaning(self) -> bool:
        """Being deleted once its dependents have forgotten it."""
        return self.deleting and ORPHAN in self.metadata.finalizers

    def blocks(self, owner_uid: str) -> bool:
        return any(each.uid == owner_uid and each.block_owner_deletion for each in self.owners)

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.resource}/{where}{self.name}"


def resource_of(kind: Kind) -> tuple[str, str]:
    """Group and resource: the same for all versions of a kind."""
    return kind.group, kind.resource


_decode: Callable[[bytes], _Object | _Pod | _Claim] = msgspec.json.Decoder(_Object).decode
_DECODERS: dict[tuple[str, str], Callable[[bytes], _Object | _Pod | _Claim]] = {
    _PODS: msgspec.json.Decoder(_Pod).decode,
    _CLAIMS: msgspec.json.Decoder(_Claim).decode,
}


def from_json(kind: Kind, json: bytes, resource_version: str = "") -> Seen:
    """From an object's JSON, at a third of the price of decoding it; the version is told apart where it is kept so."""
    read = _DECODERS.get(resource_of(kind), _decode)(json)
    metadata = read.metadata
    if resource_version:
        metadata = msgspec.structs.replace(metadata, resource_version=resource_version)
    return _seen(kind, metadata, read)


def _seen(kind: Kind, metadata: Metadata, read: _Object | _Pod | _Claim) -> Seen:
    match read:
        case _Pod():
            on_node = bool(read.spec.node_name) and read.status.phase not in _FINISHED
            return Seen(kind, metadata, claims=bool(read.spec.resource_claims), on_node=on_node)
        case _Claim():
            return Seen(kind, metadata, holders=frozenset(each.uid for each in read.status.reserved_for))
    return Seen(kind, metadata)


def from_object(kind: Kind, object_: dict[str, Any]) -> Seen:
    """From an object, or from its metadata alone."""
    whole_pod = resource_of(kind) == _PODS and "spec" in object_
    claims = bool(object_["spec"].get("resourceClaims")) if whole_pod else None
    return Seen(kind, msgspec.convert(object_, _Object).metadata, claims)
