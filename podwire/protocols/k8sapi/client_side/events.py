"""Events as values: aggregation, rate limit, and the encodings of the two event APIs."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339, rfc3339_micro
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

NORMAL, WARNING = "Normal", "Warning"

MESSAGE_BYTES = 1024
LONGEST_OBJECT_NAME = 253 - len(".") - len(f"{2**63:x}")
"""Characters of an object's name in the name of an event about it."""

BURST, REFILL_SECONDS = 25, 300.0
"""Events about one object: that many at once, then one in so many seconds."""

REMEMBERED = 4096
"""Objects, and different things recorded about them, that are kept in mind; the least recent are forgotten."""

_CUT = "..."


class Reference(NamedTuple):
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"
    resource_version: str = ""

    @classmethod
    def to(cls, pod: Pod) -> "Reference":
        return cls("Pod", pod.name, pod.namespace, pod.uid, resource_version=pod.metadata.resource_version)

    @property
    def identity(self) -> "Reference":
        """The same object, whatever its version."""
        return self._replace(resource_version="")


class Note(NamedTuple):
    """The content of an event about an object."""

    about: Reference
    type: str
    reason: str
    message: str
    field_path: str = ""
    action: str = ""
    related: Reference | None = None
    """Another object that caused it; for events.k8s.io alone."""
    host: str = ""
    """The node that reports it, where the component is on many."""

    @property
    def namespace(self) -> str:
        """Where its event lives."""
        return self.about.namespace or "default"


class Source(NamedTuple):
    """The component that reports an event."""

    component: str
    host: str = ""


@dataclass(slots=True)
class RecordedEvent:
    """One event, however often it was recorded."""

    note: Note
    first: float
    last: float
    count: int = 0
    sent_count: int = 0
    """The count that the API knows of; none when it has no event of this name."""
    name: str = ""
    waiting: bool = False
    """It will be sent, as it is by then."""

    def forgotten(self) -> None:
        """The API has it no more: what it did not hear of is an event of its own."""
        self.count, self.sent_count, self.first, self.name = self.count - self.sent_count, 0, self.last, ""


@dataclass(slots=True)
class _Bucket:
    """Tokens that come back with time."""

    tokens: float
    at: float

    def take(self, now: float) -> bool:
        self.tokens = min(BURST, self.tokens + (now - self.at) / REFILL_SECONDS)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Recent(Generic[Key, Value]):
    """The values of the keys that were asked for lately."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]


class Tally:
    """Aggregates recent events and counts repeats."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._recorded: _Recent[Note, RecordedEvent] = _Recent(remembered)
        self._buckets: _Recent[Reference, _Bucket] = _Recent(remembered)

    def add(self, note: Note, wall: float, now: float) -> RecordedEvent | None:
        """Count it; None when there is too much about its object already.

        Even that is counted, so that the next one that is sent tells the truth.
        """
        about = note.about.identity
        recorded = self._recorded.get(note._replace(about=about), lambda: RecordedEvent(note, first=wall, last=wall))
        recorded.note, recorded.last, recorded.count = note, wall, recorded.count + 1
        return recorded if self._buckets.get(about, lambda: _Bucket(BURST, now)).take(now) else None


class Names:
    """NAME.HEX: the nanosecond, never the same twice."""

    def __init__(self) -> None:
        self._last = 0

    def new(self, about: str, wall: float) -> str:
        self._last = max(self._last + 1, int(wall * 1e9))
        return f"{about[:LONGEST_OBJECT_NAME].rstrip('-.')}.{self._last:x}"


def short(message: str) -> str:
    data = message.encode("utf-8", "replace")
    if len(data) <= MESSAGE_BYTES:
        return data.decode()
    return data[: MESSAGE_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT


class Shape(NamedTuple):
    """How an API writes events: a new one, and what changes in it when it is recorded again."""

    kind: Kind
    event: Callable[[RecordedEvent, Source], Object]
    repeat: Callable[[RecordedEvent], Object]


def _core_event(recorded: RecordedEvent, source: Source) -> Object:
    note = recorded.note
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": recorded.name, "namespace": note.namespace},
        "involvedObject": _reference(note.about, note.field_path),
        "reason": note.reason,
        "message": note.message,
        "source": _given(component=source.component, host=note.host or source.host),
        "firstTimestamp": rfc3339(recorded.first),
        **_core_repeat(recorded),
        "type": note.type,
        "reportingComponent": source.component,
        **_given(reportingInstance=note.host or source.host),
    }


def _core_repeat(recorded: RecordedEvent) -> Object:
    return {"count": recorded.count, "lastTimestamp": rfc3339(recorded.last)}


def _new_event(recorded: RecordedEvent, source: Source) -> Object:
    note = recorded.note
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": recorded.name, "namespace": note.namespace},
        "eventTime": rfc3339_micro(recorded.first),
        **(_new_repeat(recorded) if recorded.count > 1 else {}),
        "reportingController": source.component,
        "reportingInstance": note.host or source.host,
        "action": note.action,
        "reason": note.reason,
        "type": note.type,
        "note": note.message,
        "regarding": _reference(note.about, note.field_path),
        **({"related": _reference(note.related)} if note.related else {}),
    }


def _new_repeat(recorded: RecordedEvent) -> Object:
    return {"series": {"count": recorded.count, "lastObservedTime": rfc3339_micro(recorded.last)}}


def _reference(about: Reference, field_path: str = "") -> Object:
    return _given(
        apiVersion=about.api_version,
        kind=about.kind,
        name=about.name,
        namespace=about.namespace,
        uid=about.uid,
        resourceVersion=about.resource_version,
        fieldPath=field_path,
    )


def _given(**fields: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}


CORE_V1 = Shape(Kind(group="", version="v1", resource="events", kind="Event"), _core_event, _core_repeat)
EVENTS_V1 = Shape(Kind(group="events.k8s.io", version="v1", resource="events", kind="Event"), _new_event, _new_repeat)
