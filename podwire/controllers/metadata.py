"""The metadata that controllers keep of every object, and the bytes of the kinds that some controller reads whole.

The bytes are those of the store where the controllers run beside it, so that a whole object costs no memory of its own.
It is decoded when a controller reads it; what is asked of a pod all the time (`PodState`) is decoded once per change.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter

import msgspec

from podwire.objects.times import parse
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

_PODS, _CLAIMS, _SECRETS = ("", "pods"), ("resource.k8s.io", "resourceclaims"), ("", "secrets")
ACCOUNT_NAME = "kubernetes.io/service-account.name"
"""The annotation of a Secret with the token of a service account."""
_FINISHED = ("Succeeded", "Failed")

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""Finalizers by which the API server asks the garbage collector to act before an owner is deleted."""


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
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: Metadata


class _PodSpec(msgspec.Struct, rename="camel"):
    resource_claims: tuple[msgspec.Raw, ...] = ()
    node_name: str = ""


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()


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


class _SecretMarks(msgspec.Struct, rename={"account": ACCOUNT_NAME}):
    account: str = ""


class _SecretMetadata(Metadata, frozen=True, rename="camel"):
    annotations: _SecretMarks | None = None


class _Secret(msgspec.Struct):
    metadata: _SecretMetadata


class PodState(msgspec.Struct, frozen=True, gc=False):
    """The state of a pod that its controllers decide on."""

    phase: str = "Pending"
    node_name: str = ""
    ready: bool = False
    ready_since: str = ""

    def available(self, min_ready_seconds: float, now: float) -> bool:
        """Returns whether the pod has been ready for so long."""
        return self.ready and self.available_in(min_ready_seconds, now) <= 0

    def available_in(self, min_ready_seconds: float, now: float) -> float:
        """Returns the seconds until a ready pod is available."""
        if not min_ready_seconds or not self.ready_since:
            return 0.0
        return parse(self.ready_since) + min_ready_seconds - now


class PartialObject(msgspec.Struct, frozen=True, gc=False):
    """The last known metadata of one object. There is one for every object of a cluster, and none is part of a cycle:
    the garbage collector need not know it."""

    kind: Kind
    metadata: Metadata
    claims: bool | None = None
    """Whether a pod has resourceClaims, which never changes; None if unknown."""
    on_node: bool = False
    """Whether a pod is bound and not finished."""
    holders: frozenset[str] | None = None
    """The uids of a claim's consumers; None if unknown."""
    pod: PodState | None = None
    """The state of a pod; None if unknown."""
    account: str = ""
    """The service account that a Secret names."""
    json: bytes = b""
    """The whole object, for the kinds that some controller reads; without its resourceVersion."""

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
        return self.kind.group_resource

    @property
    def owners(self) -> tuple[Owner, ...]:
        return self.metadata.owner_references

    @property
    def controller(self) -> Owner | None:
        """The owner that manages the object, if one does."""
        for owner in self.metadata.owner_references:
            if owner.controller:
                return owner
        return None

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or {}

    @property
    def active(self) -> bool:
        """Whether a pod counts for its controller: not finished and not being deleted."""
        return not self.deleting and (self.pod is None or self.pod.phase not in _FINISHED)

    def object(self) -> Object:
        """Decodes the whole object, a fresh copy. Only for kinds that the controllers follow whole."""
        whole: Object = _decode_whole(self.json)
        whole["metadata"]["resourceVersion"] = self.metadata.resource_version
        return whole

    @property
    def deleting(self) -> bool:
        return bool(self.metadata.deletion_timestamp)

    @property
    def waiting(self) -> bool:
        """Deleted in the foreground: waits for its blocking dependents."""
        return self.deleting and FOREGROUND in self.metadata.finalizers

    @property
    def orphaning(self) -> bool:
        """Orphaning: waits until its dependents are released."""
        return self.deleting and ORPHAN in self.metadata.finalizers

    def blocks(self, owner_uid: str) -> bool:
        return any(owner.uid == owner_uid and owner.block_owner_deletion for owner in self.owners)

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.resource}/{where}{self.name}"


resource_of: Callable[[Kind], tuple[str, str]] = attrgetter("group_resource")
"""Group and resource: the same for all versions of a kind. Controllers ask for it some forty times for each change."""


_decode_whole = msgspec.json.Decoder().decode
_Read = _Object | _Pod | _Claim | _Secret
_decode: Callable[[bytes], _Read] = msgspec.json.Decoder(_Object).decode
_DECODERS: dict[tuple[str, str], Callable[[bytes], _Read]] = {
    _PODS: msgspec.json.Decoder(_Pod).decode,
    _CLAIMS: msgspec.json.Decoder(_Claim).decode,
    _SECRETS: msgspec.json.Decoder(_Secret).decode,
}


def from_json(kind: Kind, json: bytes, resource_version: str = "", *, whole: bool = False) -> PartialObject:
    """Decodes an object's JSON at a third of the cost of decoding all of it; `resource_version` overrides the
    object's. `whole` keeps the JSON."""
    read = _DECODERS.get(resource_of(kind), _decode)(json)
    metadata: Metadata = read.metadata
    if resource_version:
        metadata = msgspec.structs.replace(metadata, resource_version=resource_version)
    return _seen(kind, metadata, read, json if whole else b"")


def _seen(kind: Kind, metadata: Metadata, read: _Read, json: bytes) -> PartialObject:
    match read:
        case _Pod(spec=spec, status=status):
            on_node = bool(spec.node_name) and status.phase not in _FINISHED
            ready = next((condition for condition in status.conditions if condition.type == "Ready"), _Condition())
            pod = PodState(
                status.phase or "Pending", spec.node_name, ready.status == "True", ready.last_transition_time or ""
            )
            return PartialObject(kind, metadata, claims=bool(spec.resource_claims), on_node=on_node, pod=pod, json=json)
        case _Claim():
            holders = frozenset(consumer.uid for consumer in read.status.reserved_for)
            return PartialObject(kind, metadata, holders=holders, json=json)
        case _Secret(metadata=_SecretMetadata(annotations=marks)):
            plain = msgspec.convert(metadata, Metadata, from_attributes=True)
            return PartialObject(kind, plain, account=marks.account if marks else "", json=json)
    return PartialObject(kind, metadata, json=json)


def from_object(kind: Kind, object_: Object, *, whole: bool = False) -> PartialObject:
    """Converts an object, or its metadata alone; `whole` keeps all of it."""
    if whole or (resource_of(kind) == _PODS and "spec" in object_):
        return from_json(kind, msgspec.json.encode(object_), whole=whole)
    if resource_of(kind) == _SECRETS:
        read = msgspec.convert(object_, _Secret)
        return _seen(kind, read.metadata, read, b"")
    return PartialObject(kind, msgspec.convert(object_, _Object).metadata)
