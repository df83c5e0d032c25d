"""Removes everything that the plugin ever set on a node."""

from collections.abc import Iterable

from podwire.linux.errors import NoSuchNamespace, WrongKind
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.tables import KernelTables
from podwire.nriplugins.network import mesh, routes
from podwire.nriplugins.network.policy.program import TABLE


def remove_all(pods: Iterable[str], node: str | None = None) -> int:
    """Cleans the namespaces of pods and of the node; returns in how many something was removed. Raises LinuxError.

    Pods come first, because the node's rules protect them until the end.
    """
    removed = 0
    for netns in pods:
        try:
            with KernelNetwork(netns) as network, KernelTables(netns) as tables:
                there = routes.remove(network) + mesh.remove(tables) + tables.delete(TABLE)
        except (NoSuchNamespace, WrongKind):
            continue
        removed += bool(there)
    with KernelTables(node) as tables:
        return removed + tables.delete(TABLE)
