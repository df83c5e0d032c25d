"""Decodes both directions of one connection into calls and responses. No I/O; no input makes it fail.

Invalid bytes are reported once; after them that direction is not decoded any more, because frames cannot be found.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError, Message

from podwire.nri.proxy.exchange import UNKNOWN, Exchange, Noted, Seen
from podwire.protocols.grpc_methods import Unary
from podwire.protocols.grpc_status import InvalidArgument, ResourceExhausted, from_code
from podwire.protocols.nri import events, methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux, ttrpc_pb2
from podwire.protocols.ttrpc.wire import MAX_DATA, REQUEST, RESPONSE, Frame, Frames

RUNTIME = "runtime"
PLUGIN = "plugin"

_ASKS_ON = {RUNTIME: mux.PLUGIN_SERVICE, PLUGIN: mux.RUNTIME_SERVICE}
_OTHER = {RUNTIME: PLUGIN, PLUGIN: RUNTIME}
_TABLE = {(method.service, method.name): method for method in (*methods.RUNTIME, *methods.PLUGIN)}


@dataclass(slots=True)
class _Asked:
    """A call that waits for its answer."""

    method: str
    known: Unary[Any, Any] | None
    request: Message | None
    began: float
    budget: float | None


class _Direction:
    """The bytes of one sender."""

    def __init__(self) -> None:
        self.pieces = mux.Pieces()
        self.frames = {mux.PLUGIN_SERVICE: Frames(), mux.RUNTIME_SERVICE: Frames()}
        self.is_lost = False


class Decoder:
    """One connection."""

    def __init__(self) -> None:
        self.plugin = UNKNOWN
        self.request_timeout: float | None = None
        """Seconds, from Configure."""
        self._sent = {RUNTIME: _Direction(), PLUGIN: _Direction()}
        self._waiting: dict[tuple[str, int], _Asked] = {}

    def feed(self, sender: str, data: bytes, now: float) -> list[Seen]:
        """The calls that these bytes complete."""
        direction = self._sent[sender]
        if direction.is_lost:
            return []
        seen: list[Seen] = []
        try:
            for conversation, piece in direction.pieces.feed(data):
                if (frames := direction.frames.get(conversation)) is None:
                    seen.append(self._note(now, f"the {sender} uses the unknown conversation {conversation}"))
                    continue
                for frame in frames.feed(piece):
                    seen += self._frame(sender, conversation, frame, now)
        except mux.BadMux as error:
            direction.is_lost = True
            seen.append(self._note(now, f"cannot decode what the {sender} sends from here on: {error}"))
        return seen

    def end(self, now: float, *askers: str) -> list[Seen]:
        """Requests of these senders (default: both) that will not be answered any more."""
        left = [key for key in self._waiting if not askers or key[0] in askers]
        return [self._exchange(key[0], self._waiting.pop(key), now, unanswered=True) for key in left]

    # Frames.

    def _frame(self, sender: str, conversation: int, frame: Frame, now: float) -> Iterator[Seen]:
        asks = conversation == _ASKS_ON[sender]
        if asks and frame.kind == REQUEST:
            yield from self._asked(sender, frame, now)
        elif not asks and frame.kind == RESPONSE:
            yield from self._answered(_OTHER[sender], frame, now)
        else:
            yield self._note(
                now, f"the {sender} sends a frame of kind {frame.kind} on stream {frame.stream}, out of place"
            )

    def _asked(self, sender: str, frame: Frame, now: float) -> Iterator[Seen]:
        try:
            envelope = ttrpc_pb2.Request.FromString(frame.data)
        except DecodeError:
            yield self._note(now, f"the {sender} sends an invalid request on stream {frame.stream}")
            return
        known = _TABLE.get((envelope.service, envelope.method))
        request = _decoded(known.request, envelope.payload) if known is not None and not frame.oversize else None
        method = envelope.method or f"a request of {frame.oversize} bytes"
        if known is not None and request is None:
            yield self._note(now, f"the payload of {method} is not a {known.request.DESCRIPTOR.name}")
        if isinstance(request, pb.RegisterPluginRequest):
            self.plugin = f"{request.plugin_idx}-{request.plugin_name}"
        elif isinstance(request, pb.ConfigureRequest):
            self.request_timeout = request.request_timeout / 1e3 or None
        budget = envelope.timeout_nano / 1e9 if envelope.timeout_nano > 0 else None
        self._waiting[sender, frame.stream] = _Asked(method, known, request, now, self._budget(method, budget))

    def _answered(self, asker: str, frame: Frame, now: float) -> Iterator[Seen]:
        if (asked := self._waiting.pop((asker, frame.stream), None)) is None:
            yield self._note(now, f"the {_OTHER[asker]} answers on stream {frame.stream} without a request")
            return
        yield self._exchange(asker, asked, now, **_came(asked, frame))

    # Smaller things.

    def _budget(self, method: str, own: float | None) -> float | None:
        """The timeout of Configure for hooks; for other calls the caller's own."""
        is_hook = method in events.BY_TITLE or method == methods.STATE_CHANGE.name
        return self.request_timeout or own if is_hook else own

    def _exchange(self, asker: str, asked: _Asked, now: float, **came: Any) -> Exchange:
        method, via, request = asked.method, "", asked.request
        if isinstance(request, pb.StateChangeEvent) and (event := events.from_state_change(request)) is not None:
            method, via, request = event[0].title, asked.method, event[1]
        return Exchange(
            plugin=self.plugin,
            asked_by=asker,
            method=method,
            via=via,
            began=asked.began,
            took=now - asked.began,
            budget=asked.budget,
            request=request,
            **came,
        )

    def _note(self, now: float, what: str) -> Noted:
        return Noted(plugin=self.plugin, at=now, what=what)


def _decoded(kind: type[Message], payload: bytes) -> Message | None:
    try:
        return kind.FromString(payload)
    except DecodeError:
        return None


def _came(asked: _Asked, frame: Frame) -> dict[str, Any]:
    """The response of an exchange, or its error."""
    if frame.oversize:
        return {"error": ResourceExhausted(f"an answer of {frame.oversize} bytes, and a frame holds {MAX_DATA}")}
    try:
        envelope = ttrpc_pb2.Response.FromString(frame.data)
    except DecodeError:
        return {"error": InvalidArgument("the answer is not a ttrpc Response")}
    if envelope.status.code:
        return {"error": from_code(envelope.status.code, envelope.status.message)}
    if asked.known is None:
        return {}
    response = _decoded(asked.known.response, envelope.payload)
    if response is None:
        return {"error": InvalidArgument(f"the answer is not a {asked.known.response.DESCRIPTOR.name}")}
    return {"response": response}
