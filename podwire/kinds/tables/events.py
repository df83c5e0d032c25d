"""Rows of events. The two groups store one object under two sets of field names."""

from typing import Any, NamedTuple

from podwire.kinds.tables.values import UNKNOWN, Json, Rows, name, number, part, since, text


class _Names(NamedTuple):
    """What a group calls the fields."""

    first: str
    last: str
    times: str
    source: str
    target: str
    message: str
    reporter: str


_CORE = _Names("firstTimestamp", "lastTimestamp", "count", "source", "involvedObject", "message", "reportingComponent")
_EVENTS = _Names(
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedCount",
    "deprecatedSource",
    "regarding",
    "note",
    "reportingController",
)


def core_event(obj: Json, now: float) -> list[Any]:
    return _event(obj, now, _CORE)


def event(obj: Json, now: float) -> list[Any]:
    return _event(obj, now, _EVENTS)


def _event(obj: Json, now: float, names: _Names) -> list[Any]:
    first = since(obj, names.first, now)
    if first == UNKNOWN:
        first = since(obj, "eventTime", now)
    last = since(obj, names.last, now)
    if last == UNKNOWN:
        last = first
    times = number(obj, names.times) or 1
    if isinstance(series := obj.get("series"), dict):
        last, times = since(series, "lastObservedTime", now), number(series, "count")
    target = part(obj, names.target)
    return [
        last,
        text(obj, "type"),
        text(obj, "reason"),
        _target(target),
        text(target, "fieldPath"),
        _source(obj, names),
        text(obj, names.message).strip(),
        first,
        times,
        name(obj),
    ]


def _target(target: Json) -> str:
    kind, named = text(target, "kind").lower(), text(target, "name")
    return f"{kind}/{named}" if named else kind


def _source(obj: Json, names: _Names) -> str:
    source = part(obj, names.source)
    component = text(source, "component") or text(obj, names.reporter)
    instance = text(source, "host") or text(obj, "reportingInstance")
    return f"{component}, {instance}" if instance else component


ROWS: Rows = {("", "events"): core_event, ("events.k8s.io", "events"): event}
