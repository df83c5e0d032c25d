"""Claims and their devices as records show them: what a driver is asked to make ready, what was given, what is offered.

Calls of drivers name claims and no pod: the kubelet, who knows for which it asks, tells that beside them. Pure.
"""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from podwire.protocols.dra import dra_v1_pb2, health_v1_pb2
from podwire.trace.pods import About
from podwire.trace.record import Record

Detail = dict[str, Any]

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
METHODS = frozenset({PREPARE, UNPREPARE, "NodeWatchResources"})
CLAIM, SLICE = "ResourceClaim", "ResourceSlice"
SHOWN = 8
"""Devices that are told by name; of more, how many."""


def digest(raw: Record) -> tuple[Detail, About]:
    detail = {name: value for name, value in raw.detail.items() if name not in ("message", "about")}
    message = _message(raw.detail.get("message") or {})
    if message is not None:
        detail["request" if raw.begins else "response"] = message
        detail |= _prepared(message) if raw.ends else _asked(message)
    namespace, _, name = str(raw.detail.get("about") or "").partition("/")
    claims = (message or {}).get("claims") if raw.begins else None
    ids = tuple(claim_id(claim.get("uid", "")) for claim in claims or () if claim.get("uid"))
    return detail, About(namespace=namespace, name=name, ids=() if name else ids)


def claim_id(uid: str) -> str:
    """How a claim is called among the things by which pods are known."""
    return f"claim {uid}"


def about_claim(claim: Mapping[str, Any]) -> About:
    """The pod for which a claim is reserved, or was made; what many share belongs to the last one that used it."""
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
    """What a diagram says of a claim or a slice at a glance: its devices."""
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


def _asked(message: Detail) -> Detail:
    names = [
        f"{mapping.get('namespace', '')}/{mapping.get('name', '')}" for mapping in _mappings(message.get("claims"))
    ]
    return {"claims": names} if names else {}


def _prepared(message: Detail) -> Detail:
    """What a driver answered for each claim, together: devices, and what went wrong."""
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


def _message(told: Detail) -> Detail | None:
    """Both versions of the messages have the same fields."""
    kind = getattr(dra_v1_pb2, told.get("type", ""), None) or getattr(health_v1_pb2, told.get("type", ""), None)
    data = told.get("data")
    if kind is None or data is None:
        return {"cut": told["cut"]} if "cut" in told else None
    try:
        return MessageToDict(kind.FromString(b64decode(data)), preserving_proto_field_name=True)
    except (DecodeError, ValueError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
