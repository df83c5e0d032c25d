"""A Node, as far as rooms decide on it. `read(object)` gives one."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.objects.containers import Part, Quantities
from podwire.objects.pods import Metadata


class Taint(Part, frozen=True, kw_only=True):
    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(Part, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = msgspec.field(default=(), name="podCIDRs")


class Condition(Part, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None


class Address(Part, frozen=True, kw_only=True):
    type: str
    address: str


class ContainerImage(Part, frozen=True, kw_only=True):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeStatus(Part, frozen=True, kw_only=True):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[Address, ...] = ()
    images: tuple[ContainerImage, ...] = ()


class Node(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    def condition(self, type_: str) -> Condition | None:
        return next((each for each in self.status.conditions if each.type == type_), None)


def read(object_: Mapping[str, Any]) -> Node:
    """Raises msgspec.ValidationError, which names the field, for what no API server should hold."""
    return msgspec.convert(object_, Node)
