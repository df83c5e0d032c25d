"""Digests protobuf messages: calls of CRI, device plugins and NRI plugins. Pure.

Recorders send messages as bytes; here they become JSON, and the pod that they are about is found. Messages of device
plugins name no pod: the kubelet, which knows for which pod it calls, adds the pod to the record (`about`).
"""

from base64 import b64decode
from types import ModuleType
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from podwire.protocols.cri import cri_pb2
from podwire.protocols.deviceplugin import deviceplugin_pb2
from podwire.protocols.nri import nri_pb2
from podwire.trace.pods import About
from podwire.trace.record import Record

Detail = dict[str, Any]

NRI_PREFIX = "NRI "

_METADATA = (("config", "metadata"), ("sandbox_config", "metadata"), ("status", "metadata"))
"""The fields of a CRI message that may hold a pod's name and UID; the metadata of a container has no UID."""
_IDS = ("pod_sandbox_id", "container_id")


def decode_message(raw: Record, *modules: ModuleType) -> Detail | None:
    """Returns the message of a record as JSON, or its size if it was too large; None without a message to show."""
    sent = raw.detail.get("message") or {}
    name, data = sent.get("type", ""), sent.get("data")
    kind = next((found for module in modules if (found := getattr(module, name, None)) is not None), None)
    if kind is None or data is None:
        return {"cut": sent["cut"]} if "cut" in sent else None
    try:
        return MessageToDict(kind.FromString(b64decode(data)), preserving_proto_field_name=True)
    except (DecodeError, ValueError):
        return {"cut": len(data)}


def digest_cri(raw: Record) -> tuple[Detail, About]:
    """Digests a CRI call; its pod is named by metadata, or known by the id of a sandbox or container."""
    detail = _without(raw, "message")
    message = decode_message(raw, cri_pb2) or {}
    if message:
        detail["request" if raw.begins else "response"] = message
    ids = tuple(message[field] for field in _IDS if message.get(field))
    for first, second in _METADATA:
        metadata = (message.get(first) or {}).get(second) or {}
        if metadata.get("uid"):
            namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
            return detail, About(uid=metadata["uid"], namespace=namespace, name=name, ids=ids)
    return detail, About(ids=ids)


def digest_device_plugin(raw: Record) -> tuple[Detail, About]:
    """Digests a call to a device plugin: the devices, and what a container gets for them."""
    detail = _without(raw, "message", "about")
    message = decode_message(raw, deviceplugin_pb2)
    if message is not None:
        detail["request" if raw.begins else "response"] = message
    return detail, about_pod(raw)


def digest_nri(raw: Record) -> tuple[Detail, About]:
    """Digests an NRI hook: the pod's network, and the adjustment that the plugin returns.

    Pods and containers are shown by name only: the CRI calls around the hook have everything else.
    """
    detail = _without(raw, "message")
    message = decode_message(raw, nri_pb2)
    if message is None or "cut" in message:
        return detail, About()
    pod, container = message.get("pod") or {}, message.get("container") or {}
    shown = {name: value for name, value in message.items() if name not in ("pod", "container")}
    if pod:
        namespaces = (pod.get("linux") or {}).get("namespaces") or []
        netns = [namespace.get("path", "") for namespace in namespaces if namespace.get("type") == "network"]
        shown["pod"] = {"name": pod.get("name", ""), "netns": "".join(netns), "ips": pod.get("ips", [])}
    if container:
        shown["container"] = container.get("name", "")
    detail["request" if raw.begins else "response"] = shown
    ids = tuple(id_ for id_ in (pod.get("id"), container.get("id")) if id_)
    return detail, About(uid=pod.get("uid", ""), namespace=pod.get("namespace", ""), name=pod.get("name", ""), ids=ids)


def about_pod(raw: Record) -> About:
    """Returns the pod for which the kubelet made a call, as the kubelet's tap added it."""
    namespace, _, name = str(raw.detail.get("about") or "").partition("/")
    return About(namespace=namespace, name=name)


def _without(raw: Record, *names: str) -> Detail:
    return {name: value for name, value in raw.detail.items() if name not in names}
