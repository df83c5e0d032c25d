"""Calls of device plugins as records show them: which devices, and what a container gets for them. Pure.

Their messages name no pod: the kubelet, who knows for which it asks, tells that beside them.
"""

from base64 import b64decode
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from podwire.protocols.deviceplugin import deviceplugin_pb2
from podwire.trace.pods import About
from podwire.trace.record import Record

Detail = dict[str, Any]


def digest(raw: Record) -> tuple[Detail, About]:
    detail = {name: value for name, value in raw.detail.items() if name not in ("message", "about")}
    message = _message(raw.detail.get("message") or {})
    if message is not None:
        detail["request" if raw.begins else "response"] = message
    namespace, _, name = str(raw.detail.get("about") or "").partition("/")
    return detail, About(namespace=namespace, name=name)


def _message(told: Detail) -> Detail | None:
    kind, data = getattr(deviceplugin_pb2, told.get("type", ""), None), told.get("data")
    if kind is None or data is None:
        return {"cut": told["cut"]} if "cut" in told else None
    try:
        return MessageToDict(kind.FromString(b64decode(data)), preserving_proto_field_name=True)
    except (DecodeError, ValueError):
        return None
