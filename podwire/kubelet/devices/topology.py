"""How near to each other the devices of a container have to be: the policies of upstream's topology manager. Pure."""

from podwire.kubelet.devices.pool import Nodes

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)

REASON = "TopologyAffinityError"
MESSAGE = "Resources cannot be allocated with Topology locality"


class TopologyAffinityError(Exception):
    """Devices that are free are too far from each other, by the node's policy. The pod fails, as upstream's does."""

    reason = REASON

    def __init__(self) -> None:
        super().__init__(MESSAGE)


def allowed(policy: str, near: Nodes, ideal: Nodes) -> bool:
    """Whether devices may be near to these nodes, where all together could be near to the ideal ones were none taken.

    Both are empty where there are no such nodes.
    """
    match policy:
        case "single-numa-node":
            return len(near) == 1
        case "restricted":
            return bool(near) and len(near) <= len(ideal)
        case _:
            return True
