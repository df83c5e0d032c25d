"""The runtime of a cluster's node as it looks from the host, and as it looks on the node."""

from pathlib import Path

from podwire.cluster.runtime import Options
from podwire.cluster.up.layout import FIRST, Layout

_ROOT = Path("/")


def outside(layout: Layout, node: str = FIRST) -> Options:
    """Below the node's home. A node on the host itself is like the first."""
    home = layout.home(node)
    return Options(socket=home.runtime_socket, prefix=home.prefix, cgroup_root=cgroup(layout, node), name=_name(node))


def inside(layout: Layout, node: str) -> Options:
    """On a node with namespaces of its own, the standard paths are standard. Cgroups are the machine's: their name
    follows from the real prefix."""
    socket = Layout(_ROOT).runtime_socket
    return Options(socket=socket, prefix=_ROOT, cgroup_root=cgroup(layout, node), name=_name(node))


def cgroup(layout: Layout, node: str) -> str:
    """The parent of a node's cgroups. Each has one of its own: a runtime sweeps what it does not know below it."""
    first = Options(socket=layout.runtime_socket, prefix=layout.prefix).cgroup_parent
    return first if node == FIRST else f"{first}-{node}"


def _name(node: str) -> str:
    """What a node's containers are marked with in the store of images, which all nodes share."""
    return "" if node == FIRST else node
