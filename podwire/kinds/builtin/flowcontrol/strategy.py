"""The strategies of FlowSchema and PriorityLevelConfiguration."""

from typing import Any

from podwire.kinds.builtin.flowcontrol import defaults
from podwire.kinds.builtin.flowcontrol.defaults import GROUP
from podwire.kinds.builtin.flowcontrol.validation import flow_schema, priority_level
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.kinds.tables import NONE, Json, age_of, condition, name_of, number, part, text


def default_flow_schema(obj: dict[str, Any]) -> None:
    if not obj["spec"].get("matchingPrecedence"):
        obj["spec"]["matchingPrecedence"] = 1000


def default_priority_level(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    if (exempt := spec.get("exempt")) is not None:
        exempt.setdefault("nominalConcurrencyShares", 0)
        exempt.setdefault("lendablePercent", 0)
    if (limited := spec.get("limited")) is not None:
        limited.setdefault("nominalConcurrencyShares", 30)
        limited.setdefault("lendablePercent", 0)
        queuing = limited.setdefault("limitResponse", {}).get("queuing")
        if queuing is not None:
            for name, number in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
                if not queuing.get(name):
                    queuing[name] = number


def flow_schema_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        text(part(spec, "priorityLevelConfiguration"), "name"),
        number(spec, "matchingPrecedence"),
        text(part(spec, "distinguisherMethod"), "type", NONE),
        age_of(obj, now),
        text(condition(part(obj, "status"), "Dangling"), "status", "?"),
    ]


def priority_level_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    limited = part(spec, "limited")
    queuing = part(limited, "limitResponse", "queuing")

    def cell(value: Json, key: str) -> Any:
        return number(value, key) if key in value else NONE

    return [
        name_of(obj),
        text(spec, "type"),
        cell(limited, "nominalConcurrencyShares"),
        cell(queuing, "queues"),
        cell(queuing, "handSize"),
        cell(queuing, "queueLengthLimit"),
        age_of(obj, now),
    ]


def first_flow_schema_status(obj: dict[str, Any]) -> None:
    """Says of a schema whose priority level every cluster has that this exists; the server reports other levels."""
    level = obj["spec"]["priorityLevelConfiguration"].get("name", "")
    if level in defaults.LEVEL_NAMES:
        condition = {**dangling(level, exists=True), "lastTransitionTime": obj["metadata"]["creationTimestamp"]}
        obj["status"] = {"conditions": [condition]}


def dangling(level: str, *, exists: bool) -> dict[str, Any]:
    """The condition of a FlowSchema that says whether its priority level exists, without a time."""
    referenced = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    if exists:
        return {"type": "Dangling", "status": "False", "reason": "Found", "message": f"{referenced} and it exists"}
    message = f"{referenced} but there is no such object"
    return {"type": "Dangling", "status": "True", "reason": "NotFound", "message": message}


FLOW_SCHEMA = Strategy(
    group=GROUP,
    kind="FlowSchema",
    parts={"spec": {"priorityLevelConfiguration": {}}, "status": {}},
    default=default_flow_schema,
    prepare_create=first_flow_schema_status,
    validate_create=flow_schema,
    validate_update=as_on_create(flow_schema),
    counts_generation=True,
    columns="Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL",
    row=flow_schema_row,
)

PRIORITY_LEVEL = Strategy(
    group=GROUP,
    kind="PriorityLevelConfiguration",
    parts={"spec": {}, "status": {}},
    default=default_priority_level,
    validate_create=priority_level,
    validate_update=as_on_create(priority_level),
    counts_generation=True,
    columns="Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age",
    row=priority_level_row,
)
