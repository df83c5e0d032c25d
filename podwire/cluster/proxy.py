"""Runs the service proxy of a node: a client of the API server, nft tables, HTTP endpoints."""

import asyncio
import contextlib
import errno
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podwire.cluster import tracing
from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.values import Network
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.proxy import Kernel, Proxy, ProxySettings
from podwire.proxy.announced_addresses import AnnouncedAddresses, remove_all
from podwire.proxy.health import Handler
from podwire.proxy.node_sysctls import bridges_are_seen, has_sctp
from podwire.tasks.backoff import Pauses
from podwire.trace.participants import API_SERVER, PROXY
from podwire.transports import credentials, http_client, http_server
from podwire.transports.clock import SystemClock
from podwire.transports.http_probe import is_healthy

_log = logging.getLogger("podwire.proxy")

USER_AGENT = "podwire-proxy"
METRICS_PORT = 10249
HEALTHZ_PORT = 10256
"""Where proxies of other nodes say whether they are healthy."""
GRACE = 0.5
"""Seconds for requests in flight when a server stops."""
FIRST_RESTART, LONGEST_RESTART = 0.5, 10.0
"""Seconds until a proxy that failed starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the proxy, as on the command line."""

    node: str
    kubeconfig: Path | None = None
    """None: the service account of the pod in which this runs."""
    context: str = ""
    pods: tuple[Network, ...] = ()
    """Addresses of pods; empty: the ranges of this node, as its Node object has them."""
    balancer_pool: tuple[Network, ...] = ()
    """Addresses of Services of type LoadBalancer that the nodes announce; empty: others do."""
    healthz: tuple[str, int] | None = ("0.0.0.0", HEALTHZ_PORT)
    """Where /healthz and /livez are served; None: nowhere."""
    metrics: tuple[str, int] | None = ("127.0.0.1", METRICS_PORT)
    """Where /metrics and /proxyMode are served; None: nowhere."""


def access_of(options: Options) -> Access:
    """Raises BadKubeconfig."""
    return credentials.of(options.kubeconfig, context=options.context)


async def run(options: Options) -> None:
    """Works until cancelled; the rules stay."""
    access = access_of(options)
    bridged = not bridges_are_seen()
    if bridged:
        _log.warning(
            "bridges do not hand frames to the rules, so pods of one bridge are masqueraded for each other",
            extra={"missing": "the kernel module br_netfilter"},
        )
    async with contextlib.AsyncExitStack() as stack:
        kernel, conntrack = Kernel(), KernelConntrack()
        stack.callback(kernel.close)
        stack.callback(conntrack.close)
        links = AnnouncedAddresses()
        stack.callback(links.close)
        tap = tracing.api_tap(PROXY, options.node)
        connecting = http_client.connect(access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER)
        http = await stack.enter_async_context(connecting)
        sctp = has_sctp()
        probe = partial(is_healthy, options.healthz[1] if options.healthz else HEALTHZ_PORT)
        settings = ProxySettings(
            node=options.node, pods=options.pods, balancer_pool=options.balancer_pool, bridged=bridged, sctp=sctp
        )
        proxy = Proxy(Client(http), SystemClock(), kernel, conntrack, settings, listen=listen, links=links, probe=probe)
        for where, handler in ((options.healthz, proxy.health.answer), (options.metrics, proxy.health.answer_metrics)):
            if where is not None:
                await _serve(stack, where, handler)
        _log.info("service proxy is running", extra={"node": options.node, "api": access.server})
        await proxy.run()


class _Servers:
    """The servers of one port, one for each address family."""

    def __init__(self, servers: list[http_server.HttpServer]) -> None:
        self._servers = servers

    async def close(self, grace: float = GRACE) -> None:
        for server in self._servers:
            await server.close(grace)


async def listen(port: int, handler: Handler) -> _Servers:
    """Answers at all addresses of the node; a kernel without IPv6 has none of that family. Raises OSError."""
    servers = [await http_server.serve(handler, host="0.0.0.0", port=port)]
    try:
        servers.append(await http_server.serve(handler, host="::", port=port))
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            await _Servers(servers).close(0)
            raise
    return _Servers(servers)


async def _serve(stack: contextlib.AsyncExitStack, where: tuple[str, int], handler: Handler) -> None:
    """Answers HTTP; a port that is in use does not keep Services from being served."""
    try:
        server = await http_server.serve(handler, host=where[0], port=where[1])
    except OSError as error:
        _log.warning("cannot serve HTTP of the proxy", extra={"address": f"{where[0]}:{where[1]}", "error": str(error)})
        return
    stack.push_async_callback(server.close, GRACE)


async def keep_running(options: Options) -> None:
    """Runs the proxy beside others of this process, which its failures do not end: it starts again."""
    pauses = Pauses(FIRST_RESTART, LONGEST_RESTART)
    while True:
        try:
            await run(options)
        except Exception as error:  # noqa: BLE001 - whatever it is, the process has other work
            _log.error("service proxy failed and starts again", extra={"error": str(error)}, exc_info=error)
        await asyncio.sleep(pauses.next())


def remove() -> bool:
    """Removes the rules and announced addresses of this network namespace; returns whether there were any."""
    announced = remove_all()
    kernel = Kernel()
    try:
        return kernel.remove() or announced
    finally:
        kernel.close()
