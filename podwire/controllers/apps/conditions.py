"""Conditions of a status, as upstream's controllers keep them, and amounts that are numbers or percentages. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from podwire.protocols.k8sapi.watch import Object


def condition(status: Mapping[str, Any], type_: str) -> Object | None:
    """Returns the condition of a type."""
    return next((condition_ for condition_ in status.get("conditions") or () if condition_.get("type") == type_), None)


def with_condition(conditions: Sequence[Object], new: Object) -> list[Object]:
    """Returns the conditions with a new one. One of the same status and reason stays as it is; one of the same status
    keeps its lastTransitionTime."""
    current = condition({"conditions": conditions}, new["type"])
    if current is not None and current.get("status") == new["status"]:
        if current.get("reason") == new["reason"]:
            return list(conditions)
        new = {**new, "lastTransitionTime": current.get("lastTransitionTime")}
    return [*without_condition(conditions, new["type"]), new]


def without_condition(conditions: Sequence[Object], type_: str) -> list[Object]:
    return [condition_ for condition_ in conditions if condition_.get("type") != type_]


def without_zeros(status: Mapping[str, Any], *kept: str) -> Object:
    """Returns a status as Go writes it: without zeros and empty lists, except for the fields that are always shown."""
    return {key: value for key, value in status.items() if key in kept or value not in (0, None, [], "")}


def scaled_value(value: int | str | None, total: int, *, round_up: bool) -> int:
    """Returns a number, or a percentage of a total."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%") or 0) * total / 100
    return math.ceil(share) if round_up else math.floor(share)
