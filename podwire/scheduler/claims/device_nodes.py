"""The nodes on which a device can be used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.objects import node_affinity
from podwire.objects.node_affinity import Wanted
from podwire.objects.nodes import Node
from podwire.objects.slices import Device, ResourceSliceSpec


@dataclass(frozen=True, slots=True)
class NodeScope:
    """One node, the nodes that a selector matches, or all nodes; otherwise none."""

    node: str = ""
    selector: Mapping[str, Any] | None = None
    everywhere: bool = False
    _picks: Wanted | None = field(default=None, repr=False, compare=False)

    def includes(self, node: Node) -> bool:
        if self.node:
            return self.node == node.name
        return self.everywhere or (self._picks is not None and self._picks(node))


def of_device(spec: ResourceSliceSpec, device: Device) -> NodeScope:
    where = device if spec.per_device_node_selection else spec
    picks = node_affinity.selected(where.node_selector) if where.node_selector else None
    return NodeScope(where.node_name, where.node_selector, where.all_nodes, picks)
