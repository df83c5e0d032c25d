"""NRI hooks as records show them: who it is about, what of the pod's network was told, what the plugin wants. Pure.

Pods and containers are told by name only: everything else of them stands in the CRI calls around the hook.
"""

from base64 import b64decode
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from podwire.protocols.nri import nri_pb2
from podwire.trace.pods import About
from podwire.trace.record import Record

Detail = dict[str, Any]

PREFIX = "NRI "


def digest(raw: Record) -> tuple[Detail, About]:
    detail = {name: value for name, value in raw.detail.items() if name != "message"}
    message = _message(raw.detail.get("message") or {})
    if message is None:
        return detail, About()
    detail["request" if raw.begins else "response"] = _shown(message)
    pod = message.get("pod") or {}
    ids = tuple(id_ for id_ in (pod.get("id"), (message.get("container") or {}).get("id")) if id_)
    return detail, About(uid=pod.get("uid", ""), namespace=pod.get("namespace", ""), name=pod.get("name", ""), ids=ids)


def _message(told: Detail) -> Detail | None:
    kind, data = getattr(nri_pb2, told.get("type", ""), None), told.get("data")
    if kind is None or data is None:
        return None
    try:
        return MessageToDict(kind.FromString(b64decode(data)), preserving_proto_field_name=True)
    except (DecodeError, ValueError):
        return None


def _shown(message: Detail) -> Detail:
    pod, container = message.get("pod"), message.get("container")
    shown = {name: value for name, value in message.items() if name not in ("pod", "container")}
    if pod:
        namespaces = (pod.get("linux") or {}).get("namespaces") or []
        netns = [namespace.get("path", "") for namespace in namespaces if namespace.get("type") == "network"]
        shown["pod"] = {"name": pod.get("name", ""), "netns": "".join(netns), "ips": pod.get("ips", [])}
    if container:
        shown["container"] = container.get("name", "")
    return shown
