"""A Tap that sends every hop as a datagram.

It runs inside the calls that are recorded, so it does as little as possible: most bodies and messages are passed on as
they are, and the collector decodes them. Secrets do not leave the process: those at known positions are replaced first
(`redact`). A body that is too large is left out, but not the name of the object.
"""

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
from google.protobuf.message import Message

from podwire.interfaces import Hop
from podwire.linux.proc.processes import Finished
from podwire.trace.record import MOST_DETAIL, Record, encode
from podwire.trace.redact import Position, cni_configuration, cni_environment, position_of
from podwire.trace.redact_messages import redacted
from podwire.transports.tapped import Execution, Stored
from podwire.transports.tapped_http import TappedExchange, TappedRequest

MOST_BODY = MOST_DETAIL // 2 - 512
"""Bytes of each body; a detail has up to two."""

_JSON = "application/json"
_ACCEPTED = ("200", "201")
_BODIES = ("call", "request", "response")
_KUBECTL = ("kubectl-command", "kubectl-flags", "kubectl-session")


class Recorder:
    """Sends the hops of one component to the collector. Thread-safe."""

    def __init__(self, send: Callable[[bytes], None], component: str, node: str = "") -> None:
        self._send = send
        self._node = node
        self._sender = f"{component}-{os.urandom(4).hex()}"
        self._numbers = itertools.count(1)

    def __call__(self, hop: Hop) -> None:
        carried, position = hop.detail, position_of(hop.method)
        if "event" in carried:
            if position.shows_events:
                for line in carried["event"].splitlines():
                    self._record(hop, position, {"event": _json(line, position)})
        elif position.is_recorded:
            detail = {name: value for name, value in carried.items() if name not in _BODIES}
            if "request" in carried:
                detail |= _request_detail(carried["request"], position)
            if "response" in carried:
                detail |= _response_detail(carried["response"], position, hop.outcome)
            self._record(hop, position, detail)

    def _record(self, hop: Hop, position: Position, detail: dict[str, Any]) -> None:
        record = Record(
            id=f"{self._sender}.{hop.detail['call']:x}",
            seq=next(self._numbers),
            time=time.time(),
            caller=hop.caller,
            callee=hop.callee,
            method=position.method,
            pod=hop.pod,
            node=self._node,
            outcome=hop.outcome,
            detail=detail,
        )
        try:
            data = encode(record)
        except (UnicodeEncodeError, RecursionError):  # lost, and noticed by its sequence number
            return
        self._send(data)


def _request_detail(request: object, position: Position) -> dict[str, Any]:
    match request:
        case Message():
            return {"message": _message(request)}
        case TappedRequest():
            return {name.replace("-", "_"): request.headers[name] for name in _KUBECTL if name in request.headers}
        case Stored():
            return {"object": _json(request.value, position)} if request.value else {}
        case Execution():
            stdin = cni_configuration(request.stdin) if len(request.stdin) <= MOST_BODY else {"cut": len(request.stdin)}
            return {"argv": list(request.argv), "env": cni_environment(request.env), "stdin": stdin}
        case _:
            return {}


def _response_detail(response: object, position: Position, outcome: str) -> dict[str, Any]:
    match response:
        case Message():
            return {"message": _message(response)}
        case TappedExchange():
            detail = {"request": _client_json(response.asked, position, outcome)} if response.asked.body else {}
            if response.body and response.content_type.startswith(_JSON):
                detail["response"] = _json(response.body, position)
            return detail
        case Finished():
            return {"code": response.code, "stdout": _text(response.stdout), "stderr": _text(response.stderr)}
        case _:
            return {}


def _message(message: Message) -> dict[str, Any]:
    data = redacted(message).SerializeToString()
    name = message.DESCRIPTOR.name
    return {"type": name, "data": data} if len(data) <= MOST_BODY else {"type": name, "cut": len(data)}


def _text(data: bytes) -> Any:
    return data.decode("utf-8", "replace") if len(data) <= MOST_BODY else {"cut": len(data)}


def _client_json(request: TappedRequest, position: Position, outcome: str) -> Any:
    """The body of a request: it may be anything, so that it is decoded here or by the collector, as text.

    JSON that the server has accepted is JSON, and is passed on like our own: the server has parsed it.
    """
    body = request.body
    if len(body) > MOST_BODY or not body.lstrip().startswith((b"{", b"[")):
        return {"cut": len(body)}
    shown = position.json(body)
    if not isinstance(shown, msgspec.Raw):
        return shown
    is_json = outcome in _ACCEPTED and request.headers.get("content-type", "").startswith(_JSON)
    return shown if is_json else _text(bytes(shown))


def _json(data: bytes, position: Position) -> Any:
    """Passes JSON of our own on without parsing; if it is too large, only what it is about."""
    return position.json(data) if len(data) <= MOST_BODY else _head(data)


class _Meta(msgspec.Struct, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, omit_defaults=True):
    node_name: str = msgspec.field(default="", name="nodeName")


class _Status(msgspec.Struct, omit_defaults=True):
    phase: str = ""


class _Object(msgspec.Struct, omit_defaults=True):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Head(_Object, omit_defaults=True):
    type: str = ""
    object: _Object | None = None
    cut: int = 0


_decode_head = msgspec.json.Decoder(_Head).decode


def _head(data: bytes) -> Any:
    try:
        return msgspec.structs.replace(_decode_head(data), cut=len(data))
    except msgspec.MsgspecError:
        return {"cut": len(data)}
