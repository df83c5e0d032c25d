"""CRI calls as records show them: messages as JSON, and the pod that they name or whose sandbox or container they do.

Pure.
"""

from base64 import b64decode
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from podwire.protocols.cri import cri_pb2
from podwire.trace.pods import About
from podwire.trace.record import Record

Detail = dict[str, Any]

_METADATA = (("config", "metadata"), ("sandbox_config", "metadata"), ("status", "metadata"))
"""Where a message may have a pod's name and UID; a container's metadata has no UID."""
_IDS = ("pod_sandbox_id", "container_id")


def digest(raw: Record) -> tuple[Detail, About]:
    detail = {name: value for name, value in raw.detail.items() if name != "message"}
    message = _message(raw.detail.get("message") or {})
    if message:
        detail["request" if raw.begins else "response"] = message
    return detail, _about(message)


def _message(told: Detail) -> Detail:
    kind, data = getattr(cri_pb2, told.get("type", ""), None), told.get("data")
    if kind is None or data is None:
        return told
    try:
        shown: Detail = MessageToDict(kind.FromString(b64decode(data)), preserving_proto_field_name=True)
    except (DecodeError, ValueError):
        return {"cut": len(data)}
    return shown


def _about(message: Detail) -> About:
    ids = tuple(message[id_] for id_ in _IDS if message.get(id_))
    for first, second in _METADATA:
        found = (message.get(first) or {}).get(second) or {}
        if found.get("uid"):
            return About(uid=found["uid"], namespace=found.get("namespace", ""), name=found.get("name", ""), ids=ids)
    return About(ids=ids)
