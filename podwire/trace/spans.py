"""Builds spans from records: a call is a span, the UID of its pod the trace, the enclosing call its parent. Pure.

The service of a span is the callee. The whole start is the root of a trace, and every call without an enclosing call
is a child of the root. Ids are derived from the records, so that the same call always is the same span.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from podwire.trace.diff import kind_of
from podwire.trace.labels import label_of
from podwire.trace.pod_trace import is_request, is_running
from podwire.trace.record import Record, succeeded

ROOT = "podwire"
"""The service of the root span."""
MOST_EVENTS = 128
"""Events of one root; more are counted."""
LONGEST = 2048
"""Characters of a detail."""

Value = str | int


@dataclass(frozen=True, slots=True)
class Event:
    time: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    trace: str
    """32 hex digits."""
    id: str
    """16 hex digits."""
    parent: str = ""
    service: str
    node: str = ""
    name: str
    begin: float
    end: float
    attributes: tuple[tuple[str, Value], ...] = ()
    events: tuple[Event, ...] = ()
    dropped_events: int = 0
    error: str = ""


@dataclass(slots=True)
class Call:
    begin: Record
    end: Record | None = None

    @property
    def pod(self) -> str | None:
        return (self.end.pod if self.end else None) or self.begin.pod

    def encloses(self, other: "Call") -> bool:
        """Whether the other call was made by the callee of this one while this one was open."""
        if other is self or self.begin.callee != other.begin.caller or self.begin.time > other.begin.time:
            return False
        return self.end is None or (other.end is not None and other.end.time <= self.end.time)


@dataclass(slots=True)
class Start:
    """Facts of a pod's start: the root of its trace."""

    namespace: str = ""
    name: str = ""
    first: float = float("inf")
    last: float = 0.0
    asked: float | None = None
    """Time of the request that created the pod."""
    running: float | None = None
    command: str = ""
    events: list[Event] = field(default_factory=list)
    dropped_events: int = 0

    def learn(self, record: Record) -> None:
        detail = record.detail
        self.namespace = self.namespace or str(detail.get("namespace", ""))
        self.name = self.name or str(detail.get("name", ""))
        self.command = self.command or str(detail.get("kubectl_command", ""))
        self.first, self.last = min(self.first, record.time), max(self.last, record.time)
        if is_request(record):
            self.asked = record.time
        if self.running is None and is_running(record):
            self.running = record.time
        if record.is_event:
            self._event(Event(record.time, f"{label_of(record)} → {record.callee}"))

    @property
    def begin(self) -> float:
        return self.first if self.asked is None else self.asked

    def _event(self, event: Event) -> None:
        if len(self.events) < MOST_EVENTS:
            self.events.append(event)
        else:
            self.dropped_events += 1


def span_id(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()


def root_id(pod: str) -> str:
    return span_id(f"{pod} root")


def spans(records: Iterable[Record]) -> list[Span]:
    """Returns a span for every call that ended and whose pod is known, and a root for each pod."""
    calls: dict[str, Call] = {}
    starts: dict[str, Start] = defaultdict(Start)
    for record in sorted(records, key=lambda record: (record.time, record.seq)):
        if record.begins:
            calls[record.id] = Call(record)
        elif record.ends and record.id in calls:
            calls[record.id].end = record
        if record.pod is not None:
            starts[record.pod].learn(record)
    enclosing = parents(calls.values())
    ended = [call_span(call, enclosing.get(call.begin.id, "")) for call in calls.values() if call.end and call.pod]
    return [*(root_span(pod, start) for pod, start in starts.items()), *ended]


def parents(calls: Iterable[Call]) -> dict[str, str]:
    """Returns the enclosing call of each call, by id; of several, one about the same resource, then the latest."""
    callees: dict[tuple[str | None, str], list[Call]] = defaultdict(list)
    ordered = sorted(calls, key=lambda call: call.begin.time)
    for call in ordered:
        callees[call.pod, call.begin.callee].append(call)
    enclosing = {}
    for call in ordered:
        around = [one for one in callees[call.pod, call.begin.caller] if one.encloses(call)]
        if around and call.pod:
            about = _resource(call)
            same = [one for one in around if _resource(one) == about]
            enclosing[call.begin.id] = (same or around)[-1].begin.id
    return enclosing


def _resource(call: Call) -> str:
    return kind_of(call.begin.method).partition(" ")[2].partition("/")[0]


def root_span(pod: str, start: Start) -> Span:
    attributes = (
        ("k8s.namespace.name", start.namespace),
        ("k8s.pod.name", start.name),
        ("k8s.pod.uid", _uid(pod)),
        ("podwire.command", start.command),
    )
    return Span(
        trace=pod,
        id=root_id(pod),
        service=ROOT,
        name=f"pod {start.namespace}/{start.name}",
        begin=start.begin,
        end=max(start.begin, start.running if start.running is not None else start.last),
        attributes=tuple((name, value) for name, value in attributes if value),
        events=tuple(start.events),
        dropped_events=start.dropped_events,
        error="" if start.running is not None else "not Running yet",
    )


def call_span(call: Call, parent: str) -> Span:
    """Returns the span of a call that has ended and whose pod is known."""
    begin, end, pod = call.begin, call.end, call.pod
    if end is None or pod is None:
        raise ValueError(f"{begin.id} has not ended, or its pod is unknown")
    return Span(
        trace=pod,
        id=span_id(begin.id),
        parent=span_id(parent) if parent else root_id(pod),
        service=begin.callee,
        node=begin.node,
        name=kind_of(begin.method),
        begin=begin.time,
        end=max(begin.time, end.time),
        attributes=tuple(_attributes(begin, end)),
        error="" if succeeded(end.outcome) else label_of(end),
    )


def _attributes(begin: Record, end: Record) -> Iterable[tuple[str, Value]]:
    yield "podwire.caller", begin.caller
    yield "podwire.method", begin.method
    yield "podwire.outcome", end.outcome
    both: Mapping[str, str] = {
        "namespace": "k8s.namespace.name",
        "name": "k8s.pod.name",
        "phase": "k8s.pod.status.phase",
    }
    for key, name in both.items():
        if value := end.detail.get(key) or begin.detail.get(key):
            yield name, str(value)
    verb, _, path = begin.method.partition(" ")
    if path.startswith("/") and end.outcome.isdecimal():
        yield "http.request.method", verb
        yield "url.path", path.partition("?")[0]
        yield "http.response.status_code", int(end.outcome)
    if isinstance(code := end.detail.get("code"), int):
        yield "process.exit.code", code
    for name, record in (("podwire.request", begin), ("podwire.response", end)):
        if record.detail:
            yield name, msgspec.json.encode(record.detail).decode()[:LONGEST]


def _uid(pod: str) -> str:
    return f"{pod[:8]}-{pod[8:12]}-{pod[12:16]}-{pod[16:20]}-{pod[20:]}"
