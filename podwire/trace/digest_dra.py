"""Digests calls to DRA drivers, and shows the devices of claims and slices. Pure.

Calls to drivers name claims but no pod: the kubelet, which knows for which pod it calls, adds the pod to the record.
"""

from collections.abc import Mapping
from typing import Any

from podwire.protocols.dra import dra_v1_pb2, health_v1_pb2
from podwire.trace.digest_grpc import about_pod, decode_message
from podwire.trace.pods import About
from podwire.trace.record import Record

Detail = dict[str, Any]

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
METHODS = frozenset({PREPARE, UNPREPARE, "NodeWatchResources"})
CLAIM, SLICE = "ResourceClaim", "ResourceSlice"
SHOWN = 8
"""Devices that are listed by name; of more, only the number is shown."""


def digest(raw: Record) -> tuple[Detail, About]:
    detail = {name: value for name, value in raw.detail.items() if name not in ("message", "about")}
    message = decode_message(raw, dra_v1_pb2, health_v1_pb2)  # both versions have the same fields
    if message is not None:
        detail["request" if raw.begins else "response"] = message
        detail |= _prepared_devices(message) if raw.ends else _requested_claims(message)
    about = about_pod(raw)
    claims = (message or {}).get("claims") if raw.begins else None
    ids = tuple(claim_id(claim.get("uid", "")) for claim in claims or () if claim.get("uid"))
    return detail, about if about.name else About(ids=ids)


def claim_id(uid: str) -> str:
    """Returns the key under which pods are found by a claim."""
    return f"claim {uid}"


def about_claim(claim: Mapping[str, Any]) -> About:
    """Returns the pod for which a claim is reserved or was generated; a shared claim belongs to the pod that used it
    last."""
    metadata = _mapping(claim.get("metadata"))
    namespace, uid = str(metadata.get("namespace", "")), str(metadata.get("uid", ""))
    ids = (claim_id(uid),) if uid else ()
    reserved = _mappings(_mapping(claim.get("status")).get("reservedFor"))
    pods = [reference for reference in reserved if reference.get("resource") == "pods"]
    owners = [mapping for mapping in _mappings(metadata.get("ownerReferences")) if mapping.get("kind") == "Pod"]
    for found in (pods, owners):
        if len(found) == 1:
            pod = found[0]
            return About(uid=str(pod.get("uid", "")), namespace=namespace, name=str(pod.get("name", "")), ids=ids)
    return About(ids=ids)


def glance(object_: Any) -> Detail:
    """Returns the devices of a claim or a slice, for the label of an arrow."""
    if not isinstance(object_, Mapping):
        return {}
    if object_.get("kind") == CLAIM:
        allocation = _mapping(_mapping(object_.get("status")).get("allocation"))
        results = _mappings(_mapping(allocation.get("devices")).get("results"))
        return _devices([f"{result.get('pool', '')}/{result.get('device', '')}" for result in results])
    if object_.get("kind") == SLICE:
        offered = _mappings(_mapping(object_.get("spec")).get("devices"))
        return _devices([str(device.get("name", "")) for device in offered])
    return {}


def _requested_claims(message: Detail) -> Detail:
    names = [f"{claim.get('namespace', '')}/{claim.get('name', '')}" for claim in _mappings(message.get("claims"))]
    return {"claims": names} if names else {}


def _prepared_devices(message: Detail) -> Detail:
    """Summarizes the answers for all claims: devices and errors."""
    answers = [_mapping(answer) for answer in _mapping(message.get("claims")).values()]
    names = [
        f"{mapping.get('pool_name', '')}/{mapping.get('device_name', '')}"
        for one in answers
        for mapping in _mappings(one.get("devices"))
    ]
    errors = [str(answer["error"]) for answer in answers if answer.get("error")]
    return _devices(names) | ({"error": "; ".join(errors)} if errors else {})


def _devices(names: list[str]) -> Detail:
    if not names:
        return {}
    return {"devices": names if len(names) <= SHOWN else [*names[:SHOWN], f"{len(names) - SHOWN} more"]}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
