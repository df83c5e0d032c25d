"""Runs a kubelet's server: its certificate, its client CA, and the socket."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podwire.cluster.daemons import background
from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.ports import Cri, PodLister
from podwire.kubelet.server import Host, KubeletMetrics, KubeletServer, Reviewer
from podwire.kubelet.volumes.usage import MountedUsage
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import NO_PEM, Pem
from podwire.transports import http_server, tls
from podwire.transports.certificates import self_signed
from podwire.transports.clock import SystemClock
from podwire.transports.http_relay import relays

_log = logging.getLogger("podwire.kubelet")

GRACE = 0.5
"""Seconds for requests in flight when the server stops."""
RENEW_SECONDS = 3600.0
"""How often a self-signed certificate is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Address and identity of the server."""

    node: str
    root: Path
    address: str = "0.0.0.0"
    port: int = 10250
    node_ips: tuple[str, ...] = ()
    certificate: Path | None = None
    """With its key; without one, a self-signed certificate is created in ROOT/pki."""
    key: Path | None = None
    client_ca: Pem = NO_PEM
    """The CA of callers; if empty, only tokens are accepted."""
    logs: Path = Path("/var/log/pods")
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The content of /configz."""


@contextlib.asynccontextmanager
async def serving(
    how: Serving,
    book: PodLister,
    cri: Cri,
    api: Client,
    meter: KubeletMetrics,
    mounted: Callable[[Pod], Awaitable[Mapping[str, MountedUsage]]] | None = None,
) -> AsyncIterator[int]:
    """Serves while the context is open; gives the port. Raises OSError when the port is taken."""
    clock = SystemClock()
    context = await asyncio.to_thread(_context, how)
    async with relays() as relay, background(_renew(how)):
        reviewer = Reviewer(api, how.node, clock)
        paths = KubeletPaths(root=how.root, logs=how.logs)
        host = Host(node=how.node, settings=how.settings, paths=paths, mounted=mounted)
        server = KubeletServer(host, book, cri, relay, reviewer, meter, clock)
        with contextlib.closing(server):
            http = await http_server.serve(server.handle, host=how.address, port=how.port, ssl_context=context)
            try:
                yield http.port
            finally:
                await http.close(GRACE)


def _context(how: Serving) -> tls.ServingContext:
    if how.certificate is not None:
        certificate, key = how.certificate, how.key or how.certificate
    else:
        certificate = key = _own_certificate(how)
    return tls.ServingContext(certificate, key, how.client_ca.file or None, client_ca_data=how.client_ca.text or None)


def _own_certificate(how: Serving) -> Path:
    return self_signed(how.root / "pki/kubelet.pem", how.node, how.node_ips)


async def _renew(how: Serving) -> None:
    """Replaces the self-signed certificate before it expires; one that the operator names is theirs to replace."""
    while how.certificate is None:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            await asyncio.to_thread(_own_certificate, how)
        except OSError as error:
            _log.warning("cannot renew serving certificate", extra={"error": str(error)})
