"""Kinds of the core group without rules of their own: Binding, ComponentStatus, ServiceAccount."""

from typing import Any

from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, condition, name_of, named_row, text


def component_status_row(obj: Json, _now: float) -> list[Any]:
    healthy = condition(obj, "Healthy")
    state = "Unknown" if not healthy else "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(obj), state, text(healthy, "message"), text(healthy, "error")]


BINDING = Strategy(group="", kind="Binding")

COMPONENT_STATUS = Strategy(
    group="", kind="ComponentStatus", columns="Name|Status|Message|Error", row=component_status_row
)

SERVICE_ACCOUNT = Strategy(group="", kind="ServiceAccount", returns_deleted=True, columns="Name|Age", row=named_row)
