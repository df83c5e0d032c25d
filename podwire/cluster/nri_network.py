"""Runs the network plugin of a node: a client of the API server, an NRI plugin of the runtime, HTTP endpoints."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from podwire import nri
from podwire.cluster import tracing
from podwire.cluster.health_endpoints import answer_health
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.nriplugins.network.assembly import COMPONENT, Parts, assemble
from podwire.nriplugins.network.cleanup import remove_all
from podwire.nriplugins.network.ports import Passing
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.trace.participants import API_SERVER, NETWORK_PLUGIN
from podwire.transports import credentials, http_client, http_server
from podwire.transports.clock import SystemClock

_log = logging.getLogger("podwire.nriplugins.network")

NAMESPACES = Path("/run/netns")
"""The directory in which runtimes pin network namespaces of pods."""
GRACE = 0.5
"""Seconds for requests in flight when the server stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the plugin, as on the command line."""

    node: str
    kubeconfig: Path | None = None
    """None: the service account of the pod in which this runs."""
    context: str = ""
    socket: Path | None = None
    index: str | None = None
    address: str = "127.0.0.1"
    port: int | None = None
    """None: no HTTP endpoints."""


def access_of(options: Options) -> Access:
    """Raises BadKubeconfig."""
    return credentials.of(options.kubeconfig, context=options.context)


async def run(options: Options) -> None:
    """Works until cancelled.

    1. Connect to the API server.  2. HTTP endpoints.  3. Informers.  4. The plugin: it registers before the informers
    have synced, and rejects pods until then.
    """
    access = access_of(options)
    tap = tracing.api_tap(NETWORK_PLUGIN, options.node)
    async with contextlib.AsyncExitStack() as stack:
        connecting = http_client.connect(access, user_agent=COMPONENT, tap=tap, callee=API_SERVER)
        http = await stack.enter_async_context(connecting)
        parts = assemble(Client(http), SystemClock(), _Trace(NETWORK_PLUGIN, options.node), node=options.node)
        stack.callback(parts.close)
        if options.port is not None:
            port = await stack.enter_async_context(_health_endpoints(options, parts))
            _log.info("network plugin serves HTTP", extra={"address": options.address, "port": port})
        _log.info("network plugin is running", extra={"node": options.node, "api": access.server})
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.run(), name="network plugin")
            group.create_task(_serve(parts, options), name="nri")


def remove(directory: Path = NAMESPACES) -> int:
    """Removes everything that the plugin configured on this node and in its pods; returns the number of namespaces."""
    return remove_all(kernelnamespace.path for kernelnamespace in KernelNamespaces(directory).list())


async def _serve(parts: Parts, options: Options) -> None:
    await nri.run(parts.plugin, socket=options.socket, index=options.index)


@contextlib.asynccontextmanager
async def _health_endpoints(options: Options, parts: Parts) -> AsyncIterator[int]:
    server = await http_server.serve(
        lambda request: answer_health(request, parts.metrics, parts.lacking),
        host=options.address,
        port=options.port or 0,
    )
    try:
        yield server.port
    finally:
        await server.close(GRACE)


# The trace.


class _Trace(tracing.PodCalls):
    def reads(self, uid: str, path: str) -> AbstractContextManager[Passing]:
        return self.call(uid, f"GET {path}", API_SERVER)

    def configures(self, uid: str, what: str) -> AbstractContextManager[Passing]:
        return self.call(uid, what)
