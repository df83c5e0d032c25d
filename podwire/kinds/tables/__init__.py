"""Tables as kubectl prints them, rendered by the server: column definitions, and an object's cells in their order."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.tables import (
    autoscaling,
    core,
    events,
    networking,
    nodes,
    pods,
    rbac,
    resource,
    serving,
    storage,
    workloads,
)
from podwire.kinds.tables.columns import PLAIN, of_column
from podwire.kinds.tables.values import Json, Rows, name, part, text
from podwire.protocols.k8sapi.kinds import Kind

__all__ = ["cells", "definitions"]

_ROWS: Rows = {
    **autoscaling.ROWS,
    **core.ROWS,
    **events.ROWS,
    **networking.ROWS,
    **nodes.ROWS,
    **pods.ROWS,
    **rbac.ROWS,
    **resource.ROWS,
    **serving.ROWS,
    **storage.ROWS,
    **workloads.ROWS,
}


def definitions(kind: Kind) -> list[dict[str, Any]]:
    """The TableColumnDefinitions of a kind."""
    columns = kind.columns if (kind.group, kind.resource) in _ROWS else PLAIN
    return [of_column(kind, each) for each in columns]


def cells(kind: Kind, obj: Mapping[str, Any], now: float) -> list[Any]:
    """One row, in the order of the definitions. `now` is the time that ages are counted to."""
    return _ROWS.get((kind.group, kind.resource), _plain)(obj, now)


def _plain(obj: Json, _now: float) -> list[Any]:
    return [name(obj), text(part(obj, "metadata"), "creationTimestamp")]
