"""Everything that the plugin ever set, taken away: for a node that is to be without it."""

from collections.abc import Iterable

from podwire.linux.errors import NoSuchNamespace, WrongKind
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.tables import KernelTables
from podwire.nriplugins.network import mesh, routes
from podwire.nriplugins.network.policy.program import TABLE


def remove_all(pods: Iterable[str], node: str | None = None) -> int:
    """From the node's namespace and those of pods; in how many something was. Raises LinuxError.

    Pods first: what comes from the node's rules protects them until the end.
    """
    found = 0
    for netns in pods:
        try:
            with KernelNetwork(netns) as network, KernelTables(netns) as tables:
                there = routes.remove(network) + mesh.remove(tables) + tables.delete(TABLE)
        except (NoSuchNamespace, WrongKind):
            continue
        found += bool(there)
    with KernelTables(node) as tables:
        return found + tables.delete(TABLE)
