"""Runs the cluster DNS: a client of the API server, a server for pods, a client of the node's resolvers."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from podwire.cluster import tracing
from podwire.cluster.daemons import background
from podwire.cluster.health_endpoints import TEXT
from podwire.dns import Limits, Server, Settings
from podwire.dns.config import Config, Upstream, resolv_conf_servers
from podwire.dns.forward import Forwarder
from podwire.dns.metrics import Metrics
from podwire.dns.publishing import METRICS_PORT, Announcement, Publisher
from podwire.dns.records import Index
from podwire.dns.watching import Feed
from podwire.dns.zone import Zone
from podwire.protocols.dns.queries import name_of
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Request, Response
from podwire.protocols.prometheus import CONTENT_TYPE
from podwire.trace.participants import API_SERVER, CLUSTER_DNS
from podwire.transports import credentials, dns_sockets, http_client, http_server
from podwire.transports.clock import SystemClock
from podwire.transports.dns_sockets import Listeners, UpstreamSockets

_log = logging.getLogger("podwire.dns")

USER_AGENT = "podwire-dns"
PORT = 53
RESOLV_CONF_BYTES = 64 * 1024
RELOAD_SECONDS = 5.0
"""How often resolv.conf is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a DNS server, as on the command line."""

    kubeconfig: Path
    context: str = ""
    addresses: tuple[str, ...] = ("127.0.0.1",)
    port: int = PORT
    metrics_port: int = METRICS_PORT
    """0: none."""
    cluster_domain: str = "cluster.local"
    cluster_ip: str = ""
    """Where the Service kube-dns is created; empty: it is not, and the server does not announce itself."""
    name: str = "podwire"
    resolv_conf: Path = Path("/etc/resolv.conf")
    upstreams: tuple[Upstream, ...] = ()
    """Servers for other names; empty: those of resolv.conf."""
    clients: tuple[IPv4Network | IPv6Network, ...] = ()
    limits: Limits = field(default_factory=Limits)


def bind(options: Options, *, any_port: bool = False) -> Listeners:
    """Binds the sockets; with `any_port`, on a free port where another program has that one. Raises OSError."""
    try:
        return dns_sockets.bind(options.addresses, options.port)
    except OSError as error:
        if not any_port:
            raise
        _log.warning("DNS port is in use; a free one is taken", extra={"port": options.port, "error": str(error)})
        return dns_sockets.bind(options.addresses, 0)


class _Upstreams:
    """Combines the ConfigMap with resolv.conf; a server of ours is not asked."""

    def __init__(self, options: Options, forwarder: Forwarder, own: frozenset[Upstream]) -> None:
        self._options = options
        self._forwarder = forwarder
        self._own = own
        self._config = Config()
        self._text: str | None = None
        self._given: object = None

    def configure(self, config: Config) -> None:
        self._config = config
        self._apply()

    async def follow_resolv_conf(self) -> None:
        """Works until cancelled."""
        while True:
            text = _head(self._options.resolv_conf)
            if text != self._text:
                self._text = text
                self._apply()
            await asyncio.sleep(RELOAD_SECONDS)

    def _apply(self) -> None:
        upstreams = self._config.upstreams or self._options.upstreams or resolv_conf_servers(self._text or "")
        for upstream in upstreams:
            if upstream in self._own:
                _log.warning("upstream is this server itself; not asked", extra={"server": str(upstream)})
        usable = tuple(upstream for upstream in upstreams if upstream not in self._own)
        stubs = {
            domain: tuple(server for server in servers if server not in self._own)
            for domain, servers in self._config.stub_domains.items()
        }
        if (usable, stubs) != self._given:
            self._given = usable, stubs
            self._forwarder.configure(usable, stubs)
            _log.info("DNS upstreams are set", extra={"servers": ", ".join(map(str, usable)) or "none"})


def _head(path: Path) -> str:
    """Reads a file up to a bound; empty if it does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(RESOLV_CONF_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


@contextlib.asynccontextmanager
async def running(options: Options, listeners: Listeners) -> AsyncIterator[None]:
    """Answers while the context is open; it opens when all names are known. Raises BadKubeconfig, OSError.

    1. Read the cluster.  2. Serve.  3. Announce the server, until the end; that may take longer.
    """
    limits, clock = options.limits, SystemClock()
    metrics = Metrics(f"dns://:{listeners.port}")
    index = Index()
    forwarder = Forwarder(UpstreamSockets(), clock, metrics, limits)
    zone = Zone(index, name_of(options.cluster_domain), limits.ttl, int(clock.wall()), options.addresses)
    server = Server(zone, forwarder, metrics, clock, Settings(clients=options.clients), limits)
    own = {Upstream(address, listeners.port) for address in options.addresses}
    own |= {Upstream(options.cluster_ip)} if options.cluster_ip else set()
    upstreams = _Upstreams(options, forwarder, frozenset(own))

    def changed() -> None:
        zone.serial = int(clock.wall())
        server.changed()

    def configure(config: Config) -> None:
        upstreams.configure(config)
        server.configure(config)

    access = credentials.load(options.kubeconfig, context=options.context)
    async with contextlib.AsyncExitStack() as stack:
        tap = tracing.api_tap(CLUSTER_DNS)
        http = await stack.enter_async_context(
            http_client.connect(access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER)
        )
        api = Client(http)
        feed = Feed(api, index, changed, configure, metrics, limits)
        stack.push_async_callback(forwarder.close)
        await stack.enter_async_context(background(feed.run(), forwarder.run(), upstreams.follow_resolv_conf()))
        await feed.synced.wait()
        await stack.enter_async_context(dns_sockets.serving(listeners, server.udp, server.tcp))
        metrics_port = await stack.enter_async_context(_http(options, metrics))
        if options.cluster_ip:
            announcement = Announcement(
                server=options.name,
                cluster_ip=options.cluster_ip,
                address=options.addresses[0],
                port=listeners.port,
                metrics_port=metrics_port,
            )
            publisher = Publisher(api, announcement)
            stack.push_async_callback(publisher.withdraw)
            await stack.enter_async_context(background(publisher.publish()))
        extra = {"addresses": ", ".join(options.addresses), "port": listeners.port, "domain": options.cluster_domain}
        _log.info("DNS server is answering", extra=extra)
        yield


@contextlib.asynccontextmanager
async def _http(options: Options, metrics: Metrics) -> AsyncIterator[int]:
    """Serves /metrics, /health and /ready while the context is open; yields the port, 0 for none."""

    async def answer(request: Request) -> Response:
        match request.path:
            case "/metrics":
                return Response(status=200, body=metrics.text().encode(), content_type=CONTENT_TYPE)
            case "/health" | "/ready":  # not served before all names are known
                return Response(status=200, body=b"OK", content_type=TEXT)
        return Response(
            status=404, body=b"not found; the endpoints are /metrics, /health and /ready", content_type=TEXT
        )

    if not options.metrics_port:
        yield 0
        return
    try:
        http = await http_server.serve(answer, host=options.addresses[0], port=options.metrics_port)
    except OSError as error:
        extra = {"port": options.metrics_port, "error": str(error)}
        _log.warning("metrics port of DNS is in use; a free one is taken", extra=extra)
        http = await http_server.serve(answer, host=options.addresses[0])
    try:
        yield http.port
    finally:
        await http.close()


async def run(options: Options, listeners: Listeners) -> None:
    """Works until cancelled."""
    async with running(options, listeners):
        await asyncio.Event().wait()
