"""NUMA alignment of the devices of a container: the policies of the stock kubelet's topology manager. Pure."""

from podwire.kubelet.devices.pool import Nodes

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)

REASON = "TopologyAffinityError"
MESSAGE = "Resources cannot be allocated with Topology locality"


class TopologyAffinityError(Exception):
    """The free devices are not aligned as the policy requires. The pod fails, as with the stock kubelet."""

    reason = REASON

    def __init__(self) -> None:
        super().__init__(MESSAGE)


def allowed(policy: str, near: Nodes, ideal: Nodes) -> bool:
    """Whether devices may be on the nodes `near`; `ideal` are the nodes that would do if all devices were free.

    Both are empty on a machine without NUMA nodes.
    """
    match policy:
        case "single-numa-node":
            return len(near) == 1
        case "restricted":
            return bool(near) and len(near) <= len(ideal)
        case _:
            return True
