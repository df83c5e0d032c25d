"""A cluster's runtime as it looks from the host, and as it looks on its node."""

from pathlib import Path

from podwire.cluster.runtime import Options
from podwire.cluster.up.layout import Layout

_ROOT = Path("/")


def outside(layout: Layout) -> Options:
    """Below the prefix."""
    return Options(socket=layout.runtime_socket, prefix=layout.prefix)


def inside(layout: Layout, *, own: bool) -> Options:
    """On a node with namespaces of its own, the standard paths are standard. Cgroups are the machine's: their name
    follows from the real prefix."""
    prefix = _ROOT if own else layout.prefix
    root = outside(layout).cgroup_parent
    return Options(socket=prefix / "run/podwire/cri.sock", prefix=prefix, cgroup_root=root)
