"""Rows of what governs the API server itself: admission, flow control, API services."""

from typing import Any

from podwire.kinds.tables.selectors import selector
from podwire.kinds.tables.values import (
    NONE,
    UNSET,
    Json,
    Row,
    Rows,
    age,
    condition,
    count,
    name,
    number,
    part,
    shown,
    text,
)


def webhooks(obj: Json, now: float) -> list[Any]:
    return [name(obj), count(obj, "webhooks"), age(obj, now)]


def _policy(rules: str) -> Row:
    def policy(obj: Json, now: float) -> list[Any]:
        spec = part(obj, "spec")
        params = part(spec, "paramKind")
        told = f"{text(params, 'apiVersion')}/{text(params, 'kind')}" if params else UNSET
        return [name(obj), count(spec, rules), told, age(obj, now)]

    return policy


def policy_binding(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [name(obj), text(spec, "policyName"), _params(part(spec, "paramRef")), age(obj, now)]


def _params(reference: Json) -> str:
    if named := text(reference, "name"):
        return f"{text(reference, 'namespace', '*')}/{named}"
    return selector(reference, "selector", empty=UNSET)


def flow_schema(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name(obj),
        text(part(spec, "priorityLevelConfiguration"), "name"),
        number(spec, "matchingPrecedence"),
        text(part(spec, "distinguisherMethod"), "type", NONE),
        age(obj, now),
        text(condition(part(obj, "status"), "Dangling"), "status", "?"),
    ]


def priority_level(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    limited = part(spec, "limited")
    queuing = part(limited, "limitResponse", "queuing")

    def told(value: Json, key: str) -> Any:
        return number(value, key) if key in value else NONE

    return [
        name(obj),
        text(spec, "type"),
        told(limited, "nominalConcurrencyShares"),
        told(queuing, "queues"),
        told(queuing, "handSize"),
        told(queuing, "queueLengthLimit"),
        age(obj, now),
    ]


def api_service(obj: Json, now: float) -> list[Any]:
    service = part(obj, "spec", "service")
    place = f"{text(service, 'namespace')}/{text(service, 'name')}" if service else "Local"
    available = condition(part(obj, "status"), "Available")
    told = shown(available, "status", "Unknown")
    if told != "True" and available:
        told = f"{told} ({text(available, 'reason')})"
    return [name(obj), place, told, age(obj, now)]


_ADMISSION = "admissionregistration.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"

ROWS: Rows = {
    (_ADMISSION, "mutatingadmissionpolicies"): _policy("mutations"),
    (_ADMISSION, "mutatingadmissionpolicybindings"): policy_binding,
    (_ADMISSION, "mutatingwebhookconfigurations"): webhooks,
    (_ADMISSION, "validatingadmissionpolicies"): _policy("validations"),
    (_ADMISSION, "validatingadmissionpolicybindings"): policy_binding,
    (_ADMISSION, "validatingwebhookconfigurations"): webhooks,
    ("apiregistration.k8s.io", "apiservices"): api_service,
    (_FLOW, "flowschemas"): flow_schema,
    (_FLOW, "prioritylevelconfigurations"): priority_level,
}
