"""A Node, with the fields that components decide on. `read(object)` parses one."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.objects.containers import Part, Quantities
from podwire.objects.pods import Metadata


class Taint(Part, frozen=True, kw_only=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Part, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Condition(Part, frozen=True, kw_only=True):
    type: str
    status: str
    last_heartbeat_time: str | None = None


class ContainerImage(Part, frozen=True, kw_only=True):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeStatus(Part, frozen=True, kw_only=True):
    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()


class Node(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    def condition(self, type_: str) -> Condition | None:
        return next((condition for condition in self.status.conditions if condition.type == type_), None)


def read(object_: Mapping[str, Any]) -> Node:
    """Raises msgspec.ValidationError, which names the field, for what no API server should hold."""
    return msgspec.convert(object_, Node)
