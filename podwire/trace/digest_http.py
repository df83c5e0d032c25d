"""Digests requests to the API server: the client, the pod, and the objects sent and returned. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.protocols.k8sapi import paths
from podwire.protocols.k8sapi.paths import BadPath, Target
from podwire.trace import digest_dra
from podwire.trace.participants import ORDER, of_agent
from podwire.trace.pods import About
from podwire.trace.record import Record

Detail = dict[str, Any]


def participant(name: str) -> str:
    """Returns the participant for a name that is one already, or for a User-Agent."""
    return name if name in ORDER else of_agent(name)


def digest(raw: Record) -> tuple[Detail, About]:
    target = _target(raw.method)
    if target is None:
        return {}, About()
    detail = dict(raw.detail)
    if raw.is_event:
        return _event(detail)
    if isinstance(text := detail.get("request"), str):
        detail["request"] = _body(text)
    response = detail.get("response")
    if target.resource != "pods":
        detail |= digest_dra.glance(response) or digest_dra.glance(detail.get("request"))
        return _without_lists(detail, target), _elsewhere(target, detail)
    detail |= glance(response)
    about = About(uid=uid_of(response), namespace=target.namespace, name=target.name or name_of(response))
    if target.subresource == "binding":  # answered with a Status; the UID may be in the request
        about = About(uid=uid_of(detail.get("request")), namespace=target.namespace, name=target.name)
        detail.pop("phase", None)
    return _without_lists(detail, target), about


def uid_of(object_: Any) -> str:
    """Returns the UID of an object; a Status and a list have none."""
    return _metadata(object_).get("uid", "") if _is_object(object_) else ""


def name_of(object_: Any) -> str:
    return _metadata(object_).get("name", "") if _is_object(object_) else ""


def glance(object_: Any) -> Detail:
    """Returns the phase and the node of a pod, for the label of an arrow."""
    if not isinstance(object_, Mapping):
        return {}
    found = {"phase": _at(object_, "status", "phase"), "nodeName": _at(object_, "spec", "nodeName")}
    return {name: value for name, value in found.items() if value}


def referred(object_: Any) -> About:
    """Returns the pod that another object refers to: an Event, a TokenRequest bound to a pod, or a claim."""
    if not isinstance(object_, Mapping):
        return About()
    if object_.get("kind") == digest_dra.CLAIM:
        return digest_dra.about_claim(object_)
    for reference in (object_.get("involvedObject"), object_.get("regarding"), _at(object_, "spec", "boundObjectRef")):
        if isinstance(reference, Mapping) and reference.get("kind") == "Pod":
            namespace = reference.get("namespace") or _metadata(object_).get("namespace", "")
            return About(uid=reference.get("uid", ""), namespace=namespace, name=reference.get("name", ""))
    return About()


def _elsewhere(target: Target, detail: Detail) -> About:
    found = referred(detail.get("request"))
    if found == About():
        found = referred(detail.get("response"))
    if target.resource == "bindings":
        request = detail.get("request")
        found = About(uid=uid_of(request), namespace=target.namespace, name=name_of(request))
    return found if found.namespace or not found.name else About(
        uid=found.uid, namespace=target.namespace, name=found.name
    )  # fmt: skip


def _event(detail: Detail) -> tuple[Detail, About]:
    """Digests one frame of a watch of pods; in a Table, the pod is the object of the row."""
    frame = detail.get("event")
    if not isinstance(frame, Mapping):
        return {}, About()
    object_ = frame.get("object")
    if isinstance(object_, Mapping) and object_.get("kind") == "Table":
        rows = object_.get("rows") or [{}]
        object_ = rows[0].get("object")
    uid = uid_of(object_)
    if not uid:
        return {"type": frame.get("type", "")}, About()  # a bookmark, an error
    about = About(uid=uid, namespace=_metadata(object_).get("namespace", ""), name=name_of(object_))
    return {"type": frame.get("type", ""), **glance(object_), "object": object_}, about


def _without_lists(detail: Detail, target: Target) -> Detail:
    """Replaces the items of a list by their number: they may be thousands, and do not describe the call."""
    response = detail.get("response")
    if target.name or not isinstance(response, Mapping):
        return detail
    for listed in ("items", "rows"):
        if isinstance(response.get(listed), list):
            return {**detail, "response": {"kind": response.get("kind", ""), listed: len(response[listed])}}
    return detail


def _target(method: str) -> Target | None:
    path = method.partition(" ")[2].partition("?")[0]
    try:
        return paths.parse(path)
    except BadPath:
        return None


def _body(text: str) -> Any:
    """Parses a request body. Of a body that is not JSON only the size is stored, because it cannot be searched for
    secrets."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return {"cut": len(text)}


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("kind") != "Status" and "items" not in value


def _metadata(value: Any) -> Mapping[str, Any]:
    found = value.get("metadata") if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
