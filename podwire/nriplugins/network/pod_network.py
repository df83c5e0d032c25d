"""Routes and redirections of one pod, set in its namespace. Synchronous: called in worker threads."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

from podwire.linux.errors import NoSuchNamespace
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.tables import KernelTables
from podwire.nriplugins.network import mesh, routes
from podwire.nriplugins.network.resource_cache import Resources
from podwire.nriplugins.network.resources import MESH, ROUTES, concerning
from podwire.nriplugins.network.sandbox import Sandbox


@contextmanager
def _tables(netns: str) -> Iterator[KernelTables]:
    """Closing waits until the kernel has tidied up after what was deleted, and nobody has to wait for that."""
    tables = KernelTables(netns)
    try:
        yield tables
    finally:
        Thread(target=tables.close, name="close nft", daemon=True).start()


def fit(local: Sandbox, resources: Resources) -> None:
    """Make the namespace what the resources say, and remember what went wrong. Raises LinuxError."""
    pod = local.planned
    ways, redirections = routes.plan(pod, resources.routes), mesh.plan(pod, resources.meshes)
    chosen = (*concerning(pod, resources.routes, ROUTES), *concerning(pod, resources.meshes, MESH))
    local.concerned = frozenset(each.head.uid for each in chosen)
    routed, meshed = bool(ways.routes or ways.rules), bool(redirections.inbound or redirections.outbound)
    route_troubles, mesh_troubles = ways.troubles, redirections.troubles
    if routed or not local.bare:
        with KernelNetwork(local.netns) as network:
            route_troubles = routes.apply(network, ways).troubles
    if meshed or not local.bare:
        with _tables(local.netns) as tables:
            mesh_troubles = mesh.apply(tables, redirections).troubles
    local.troubles = (*route_troubles, *mesh_troubles)
    local.bare = not (routed or meshed)


def remove(local: Sandbox) -> None:
    """Take away all that is ours; nothing happens when its namespace is gone."""
    if local.bare:
        return
    with suppress(NoSuchNamespace):
        with KernelNetwork(local.netns) as network:
            routes.remove(network)
        with _tables(local.netns) as tables:
            mesh.remove(tables)
    local.bare = True
