"""NodeMetrics and PodMetrics of metrics.k8s.io/v1beta1: kinds that are read only and not stored."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.resource import Resource
from podwire.kinds.schema import Schemas
from podwire.kinds.strategy import Strategy
from podwire.protocols.k8sapi.kinds import Kind

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
NODES = Kind(
    group=GROUP, version=VERSION, resource="nodes", kind="NodeMetrics", namespaced=False, verbs=("get", "list")
)
PODS = Kind(group=GROUP, version=VERSION, resource="pods", kind="PodMetrics", verbs=("get", "list"))
COLUMNS = "Name|CPU|Memory|Window"


def metrics_resources(schemas: Schemas) -> list[Resource]:
    """Returns both resources; nobody writes them, so that they have no rules."""
    shape = schemas.shape("v1", "Status")
    if shape is None:
        raise LookupError("the installed schemas lack v1 Status")
    resources = []
    for kind in (NODES, PODS):
        strategy = Strategy(
            group=GROUP, kind=kind.kind, stored_as=f"{GROUP}/{kind.resource}", columns=COLUMNS, row=_row
        )
        resources.append(
            Resource(
                kind=kind,
                strategy=strategy,
                shape=shape,
                prefix=f"/registry/{GROUP}/{kind.resource}/",
                default=lambda _obj: None,
                validate=lambda _obj: [],
                validate_update=lambda _new, _old, _subresource: [],
                columns=strategy.column_definitions,
                cells=strategy.row,
            )
        )
    return resources


def _row(obj: Mapping[str, Any], _now: float) -> list[Any]:
    return [obj["metadata"]["name"], *total_of(obj), obj["window"]]


def total_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the processor and memory of a node, or of all containers of a pod."""
    usages = [obj["usage"]] if "usage" in obj else [container["usage"] for container in obj["containers"]]
    return (
        f"{sum(int(usage['cpu'].removesuffix('n')) for usage in usages)}n",
        f"{sum(int(usage['memory'].removesuffix('Ki')) for usage in usages)}Ki",
    )
