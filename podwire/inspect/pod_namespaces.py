"""Reads the network namespaces of the pods on a node, as its runtime pinned them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from podwire.cluster.up import status_file
from podwire.cluster.up.layout import FIRST, Layout
from podwire.linux.errors import LinuxError
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Address, Link, Route


class RuntimeDown(Exception):
    """The runtime of a node does not run: its namespaces cannot be found."""


class Namespace(NamedTuple):
    """A network namespace and what is in it."""

    path: Path
    links: tuple[Link, ...]
    addresses: tuple[Address, ...]
    routes: tuple[Route, ...]
    """Of the main table, of both families."""


def pod_namespaces(layout: Layout, node: str) -> Iterator[Namespace]:
    """Yields the namespaces of a node; one that ends meanwhile is left out. Raises RuntimeDown."""
    status = status_file.read(layout)
    name = "runtime" if node == FIRST else f"runtime@{node}"
    entries = [entry for entry in (status.components if status else ()) if entry.name == name and entry.pid]
    if not entries:
        raise RuntimeDown(f"the runtime of node {node} does not run: is the cluster up?")
    root = Path(f"/proc/{entries[0].pid}/root")
    for path in sorted((root / "run/netns").glob("*")):
        with contextlib.suppress(LinuxError, OSError):
            yield read_namespace(path)


def read_namespace(path: Path | None) -> Namespace:
    """Reads a namespace; None is that of this process. Raises LinuxError."""
    with KernelNetwork(path) as network:
        return Namespace(
            path or Path("/proc/self/ns/net"),
            tuple(network.links.list()),
            tuple(network.addresses.list()),
            tuple(route for family in (4, 6) for route in network.routes.list(family)),
        )
