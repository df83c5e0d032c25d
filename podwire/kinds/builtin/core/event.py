"""Event, in core/v1 and events.k8s.io/v1: one stored object under two sets of field names.

Events of the old form have counts and must be about their own namespace; those of the new form have an eventTime and
name their reporter.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from podwire.kinds.field_checks import Errors, Object, named, unchanged
from podwire.kinds.stored import Object as StoredObject
from podwire.kinds.strategy import Conversion, SelectableField, Strategy, as_on_create, selectable
from podwire.kinds.tables import UNKNOWN, Json, name_of, number, part, since, text
from podwire.objects import names
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.status import FieldError, invalid, required

_LENGTHS: Mapping[str, int] = {"reportingInstance": 128, "action": 128, "reason": 128}
_NOTE = 1024
_MISMATCH = "does not match event.namespace"

_KEPT: Mapping[str, str] = {
    "regarding": "involvedObject",
    "reason": "reason",
    "note": "message",
    "type": "type",
    "eventTime": "eventTime",
    "action": "action",
    "related": "related",
    "reportingController": "reportingController",
    "reportingInstance": "reportingInstance",
}
"""Fields that an update may not change, and their names in error messages."""

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""Fields of a core/v1 Event and what they are called in events.k8s.io/v1."""

_CORE_NAMES = {new: old for old, new in _EVENT_NAMES.items()}
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_COLUMNS = "Last Seen|Type|Reason|Object|Subobject*|Source*|Message|First Seen*|Count*|Name*"


def validate_core_create(obj: Object) -> list[FieldError]:
    """core/v1, with its own names for the same fields."""
    return _legacy(obj, "involvedObject", "reportingComponent", "message")


def validate_create(obj: Object) -> list[FieldError]:
    """events.k8s.io/v1 is stricter."""
    errors = _legacy(obj, "regarding", "reportingController", "note")
    _series(obj.get("series"), errors)
    if not obj.get("eventTime"):
        errors.append(required("eventTime"))
    if obj.get("type") not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {obj.get('type', '')}"))
    for field, name in (
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ):
        if obj.get(field):
            errors.append(invalid(name, "", "needs to be unset"))
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = _legacy(new, "regarding", "reportingController", "note")
    if new.get("series") != old.get("series"):
        _series(new.get("series"), errors)
    for field, name in _KEPT.items():
        unchanged(new.get(field), old.get(field), name, errors)
    return errors


def _legacy(obj: Object, about: str, controller: str, note: str) -> list[FieldError]:
    errors: Errors = []
    namespace = (obj.get("metadata") or {}).get("namespace", "")
    involved = (obj.get(about) or {}).get("namespace", "")
    if not obj.get("eventTime"):
        if involved != namespace and not (not involved and namespace == "default"):
            errors.append(invalid("involvedObject.namespace", involved, _MISMATCH))
        return errors
    if not involved and namespace not in ("default", "kube-system"):
        errors.append(invalid("involvedObject.namespace", involved, _MISMATCH))
    if not obj.get(controller):
        errors.append(required(controller))
    named(names.qualified_name, obj.get(controller) or "", controller, errors)
    for field, limit in _LENGTHS.items():
        text = obj.get(field) or ""
        if not text:
            errors.append(required(field))
        elif len(text) > limit:
            errors.append(invalid(field, "", f"can have at most {limit} characters"))
    if len(obj.get(note) or "") > _NOTE:
        errors.append(invalid("message", "", f"can have at most {_NOTE} characters"))
    return errors


def _series(series: Object | None, errors: Errors) -> None:
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        errors.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errors.append(required("series.lastObservedTime"))


class _Names(NamedTuple):
    """The names of the fields in one API group."""

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


def core_row(obj: Json, now: float) -> list[Any]:
    return _row(obj, now, _CORE)


def row(obj: Json, now: float) -> list[Any]:
    return _row(obj, now, _EVENTS)


def _row(obj: Json, now: float, names: _Names) -> list[Any]:
    first = since(obj, names.first, now)
    if first == UNKNOWN:
        first = since(obj, "eventTime", now)
    last = since(obj, names.last, now)
    if last == UNKNOWN:
        last = first
    times = number(obj, names.times) or 1
    if isinstance(series := obj.get("series"), dict):
        last, times = since(series, "lastObservedTime", now), number(series, "count")
    target, source = part(obj, names.target), part(obj, names.source)
    kind, named_target = text(target, "kind").lower(), text(target, "name")
    component = text(source, "component") or text(obj, names.reporter)
    instance = text(source, "host") or text(obj, "reportingInstance")
    return [
        last,
        text(obj, "type"),
        text(obj, "reason"),
        f"{kind}/{named_target}" if named_target else kind,
        text(target, "fieldPath"),
        f"{component}, {instance}" if instance else component,
        text(obj, names.message).strip(),
        first,
        times,
        name_of(obj),
    ]


def _renamed(obj: StoredObject, names: Mapping[str, str], api_version: str) -> StoredObject:
    renamed = {names.get(key, key): value for key, value in obj.items()}
    renamed["apiVersion"] = api_version
    return renamed


def to_core(obj: StoredObject) -> StoredObject:
    return _renamed(obj, _CORE_NAMES, "v1")


def from_core(obj: StoredObject) -> StoredObject:
    return _renamed(obj, _EVENT_NAMES, "events.k8s.io/v1")


def _source_component(event: Mapping[str, Any]) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


CORE_EVENT = Strategy(
    group="",
    kind="Event",
    check_name=names.path_segment,
    parts={"involvedObject": {}, "source": {}, "reportingComponent": "", "reportingInstance": ""},
    allow_create_on_update=True,
    validate_create=validate_core_create,
    validate_update=as_on_create(validate_core_create),
    selectable=(
        *(selectable(f"involvedObject.{field}") for field in _INVOLVED),
        selectable("reason"),
        selectable("reportingComponent"),
        SelectableField("source", (), read=_source_component),
        selectable("type"),
    ),
    columns=_COLUMNS,
    row=core_row,
)

EVENT = Strategy(
    group="events.k8s.io",
    kind="Event",
    conversions={"v1": Conversion(BUILTIN["v1", "Event"], to_core, from_core)},
    parts={"deprecatedSource": {}, "regarding": {}},
    allow_create_on_update=True,
    validate_create=validate_create,
    validate_update=validate_update,
    selectable=(
        *(selectable(f"regarding.{field}", stored=f"involvedObject.{field}") for field in _INVOLVED),
        selectable("reason"),
        selectable("reportingController", stored="reportingComponent"),
        selectable("type"),
    ),
    columns=_COLUMNS,
    row=row,
)
