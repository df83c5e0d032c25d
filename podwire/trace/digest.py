"""Turns datagrams into records: decodes bodies and messages, finds the pod. Pure.

Requests to the API server are digested in `digest_http`; calls of CRI, device plugins and NRI plugins in `digest_grpc`;
calls of DRA drivers in `digest_dra`; program executions and writes to the store here.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from podwire.protocols.cni import args
from podwire.protocols.cni.errors import CniError
from podwire.trace import digest_dra, digest_grpc, digest_http
from podwire.trace.participants import CNI_PLUGIN, DEVICE_PLUGIN, NETWORK_DRIVER, of_socket
from podwire.trace.pods import About, Pods
from podwire.trace.record import MOST_DETAIL, Record, encode

Detail = dict[str, Any]
REGISTRY = "/registry/"


def digested(raw: Record, pods: Pods) -> Record:
    """Returns the record to store. Each datagram gives one record, so that sequence numbers have no holes."""
    detail, about = _digester(raw)(raw)
    if about.name:
        detail = {"namespace": about.namespace, "name": about.name, **detail}
    pod = raw.pod or _resolved(raw, about, pods)
    return Record(
        id=raw.id,
        seq=raw.seq,
        time=raw.time,
        caller=_participant(raw.caller, raw),
        callee=_participant(raw.callee, raw),
        method=raw.method,
        pod=pod,
        node=raw.node,
        outcome=raw.outcome,
        detail=_bounded(detail),
    )


def _participant(name: str, raw: Record) -> str:
    """Plugins of a kubelet are identified by their sockets."""
    if name in (DEVICE_PLUGIN, NETWORK_DRIVER) and (socket := raw.detail.get("socket")):
        return of_socket(str(socket)) or name
    return digest_http.participant(name)


def _resolved(raw: Record, about: About, pods: Pods) -> str | None:
    pod = pods.resolve("" if raw.is_event else raw.id, about)
    if raw.ends and raw.method.startswith(f"delete {REGISTRY}pods/"):
        pods.forget(about.namespace, about.name)
    return pod


def _digester(raw: Record) -> Callable[[Record], tuple[Detail, About]]:
    path = raw.method.partition(" ")[2]
    if path.startswith(REGISTRY):
        return _store
    if path.startswith("/"):
        return digest_http.digest
    if raw.method.startswith(digest_grpc.NRI_PREFIX):
        return digest_grpc.digest_nri
    if raw.method in digest_dra.METHODS:
        return digest_dra.digest
    if DEVICE_PLUGIN in (raw.caller, raw.callee):
        return digest_grpc.digest_device_plugin
    if CNI_PLUGIN in (raw.caller, raw.callee) or "env" in raw.detail or "argv" in raw.detail or "code" in raw.detail:
        return _execution
    return digest_grpc.digest_cri


def _store(raw: Record) -> tuple[Detail, About]:
    """A write to the store, such as `create /registry/pods/default/web`."""
    detail = dict(raw.detail)
    resource, _, rest = raw.method.partition(" ")[2].removeprefix(REGISTRY).partition("/")
    namespace, _, name = rest.partition("/")
    value = detail.get("object")
    if resource == "pods":
        detail |= digest_http.glance(value)
        return detail, About(uid=digest_http.uid_of(value), namespace=namespace, name=name)
    return detail | digest_dra.glance(value), digest_http.referred(value)


def _execution(raw: Record) -> tuple[Detail, About]:
    """A CNI plugin, which knows its pod from CNI_ARGS, or the OCI runtime, which knows its container."""
    detail = dict(raw.detail)
    for name in ("stdin", "stdout"):
        if isinstance(text := detail.get(name), str):
            detail[name] = _parsed(text)
    env = detail.get("env") or {}
    argv = detail.get("argv") or []
    if "--id" in argv[:-1]:
        return detail, About(ids=(argv[argv.index("--id") + 1],))
    pod = _arguments(env.get("CNI_ARGS", ""))
    return detail, About(
        uid=pod.get("K8S_POD_UID", ""),
        namespace=pod.get("K8S_POD_NAMESPACE", ""),
        name=pod.get("K8S_POD_NAME", ""),
        ids=(env["CNI_CONTAINERID"],) if env.get("CNI_CONTAINERID") else (),
    )


def _arguments(text: str) -> dict[str, str]:
    try:
        return args.parsed(text, ("K8S_POD_UID", "K8S_POD_NAMESPACE", "K8S_POD_NAME"))
    except CniError:
        return {}


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


def _bounded(detail: Detail) -> Detail:
    """Replaces the largest parts of a detail that is too large by their sizes."""
    size = len(encode(detail))
    while size > MOST_DETAIL:
        sizes = {name: len(encode(value)) for name, value in detail.items()}
        largest = max(sizes, key=lambda name: sizes[name])
        detail = {**detail, largest: {"cut": sizes[largest]}}
        size = len(encode(detail))
    return detail
