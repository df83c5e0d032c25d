"""Serves the page: one port on the loopback, a new token for each start."""

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from podwire.cluster.daemons import background
from podwire.cluster.tracing import CollectorOptions, collect
from podwire.cluster.up.layout import Layout
from podwire.interfaces import Tap
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.trace.participants import API_SERVER
from podwire.trace.recorder import Recorder
from podwire.transports import http_client, http_server
from podwire.transports.datagrams import Sender
from podwire.transports.http_connection import HttpLimits
from podwire.web.access import Gate
from podwire.web.event_hub import EventHub
from podwire.web.handler import PageHandler
from podwire.web.host_views import HostViews
from podwire.web.live import Live
from podwire.web.stored_traces import StoredTraces

LOOPBACK = "127.0.0.1"
USER_AGENT = "podwire-ui"
LIMITS = HttpLimits(connections=256, unauthenticated_per_address=256)
STOP_SECONDS = 1.0


def new_token() -> str:
    return secrets.token_urlsafe(24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    access: Access
    traces: Path
    """The directory of the records."""
    port: int = 0
    layout: Layout | None = None
    cluster: str = ""
    allow_actions: bool = False
    unseen: tuple[str, ...] = ()
    collector: CollectorOptions | None = None
    """A collector of our own, for a cluster without one: stores the watches of the page, and calls of components that
    send theirs to its socket."""
    token: str = field(default_factory=new_token)


class Served(NamedTuple):
    link: str
    """With the token: only for those who may see the page."""
    hub: EventHub


@contextlib.asynccontextmanager
async def serving(options: Options) -> AsyncIterator[Served]:
    """Serves while the context is open. Raises OSError when the port is in use."""
    tap = None if options.collector is None else _tap(options.collector)
    async with http_client.connect(options.access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER) as http:
        client, hub, traces = Client(http), EventHub(), StoredTraces(options.traces)
        live = Live(client, traces, hub)
        host = HostViews(
            client=client,
            traces=traces,
            layout=options.layout,
            cluster=options.cluster,
            allow_actions=options.allow_actions,
            unseen=options.unseen,
        )
        gate = Gate(token=options.token)
        handler = PageHandler(gate, hub, live, traces, host)
        server = await http_server.serve(handler, host=LOOPBACK, port=options.port, limits=LIMITS)
        gate.port = server.port
        try:
            collecting = [] if options.collector is None else [collect(options.collector)]
            async with background(live.run(), *collecting):
                yield Served(gate.link(), hub)
        finally:
            await server.close(STOP_SECONDS)


def _tap(collector: CollectorOptions) -> Tap:
    """Returns the tap that records the watches of the page: the API server of this cluster records nothing."""
    return Recorder(Sender(str(collector.socket)).send, USER_AGENT)
