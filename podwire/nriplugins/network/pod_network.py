"""Routes and mesh of one pod, applied in its network namespace. Synchronous: called in worker threads."""

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
    """Closes in a thread: close(2) waits about 15 ms for the kernel to free deleted tables."""
    tables = KernelTables(netns)
    try:
        yield tables
    finally:
        Thread(target=tables.close, name="close nft", daemon=True).start()


def fit(sandbox: Sandbox, resources: Resources) -> None:
    """Applies the resources that select a pod, and stores their problems. Raises LinuxError."""
    pod = sandbox.planned
    ways, redirections = routes.plan(pod, resources.routes), mesh.plan(pod, resources.meshes)
    chosen = (*concerning(pod, resources.routes, ROUTES), *concerning(pod, resources.meshes, MESH))
    sandbox.selected_by = frozenset(resource.head.uid for resource in chosen)
    routed, meshed = bool(ways.routes or ways.rules), bool(redirections.inbound or redirections.outbound)
    route_troubles, mesh_troubles = ways.problems, redirections.problems
    if routed or not sandbox.untouched:
        with KernelNetwork(sandbox.netns) as network:
            route_troubles = routes.apply(network, ways).problems
    if meshed or not sandbox.untouched:
        with _tables(sandbox.netns) as tables:
            mesh_troubles = mesh.apply(tables, redirections).problems
    sandbox.problems = (*route_troubles, *mesh_troubles)
    sandbox.untouched = not (routed or meshed)


def remove(sandbox: Sandbox) -> None:
    """Removes routes, rules and tables of ours; idempotent, also when the namespace is gone."""
    if sandbox.untouched:
        return
    with suppress(NoSuchNamespace):
        with KernelNetwork(sandbox.netns) as network:
            routes.remove(network)
        with _tables(sandbox.netns) as tables:
            mesh.remove(tables)
    sandbox.untouched = True
