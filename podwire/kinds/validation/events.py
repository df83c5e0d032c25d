"""Events: old ones (with counts) must be about their own namespace, new ones (with an eventTime) say who reports."""

from collections.abc import Mapping

from podwire.kinds.validation.pod_values import Errors, Object, named
from podwire.kinds.validation.rules import Rules, unchanged
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid, required

_LENGTHS: Mapping[str, int] = {"reportingInstance": 128, "action": 128, "reason": 128}
_NOTE = 1024
_MISMATCH = "does not match event.namespace"


def create_core(obj: Object) -> list[FieldError]:
    """core/v1, with its own names for the same fields."""
    return _legacy(obj, "involvedObject", "reportingComponent", "message")


def update_core(new: Object, _old: Object) -> list[FieldError]:
    return create_core(new)


def create(obj: Object) -> list[FieldError]:
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


def update(new: Object, old: Object) -> list[FieldError]:
    errors = _legacy(new, "regarding", "reportingController", "note")
    if new.get("series") != old.get("series"):
        _series(new.get("series"), errors)
    for field, name in _KEPT.items():
        unchanged(new.get(field), old.get(field), name, errors)
    return errors


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
"""Fields that an update may not change, and the names under which errors tell them."""


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


RULES = {
    ("", "Event"): Rules(create_core, update_core),
    ("events.k8s.io", "Event"): Rules(create, update),
}
