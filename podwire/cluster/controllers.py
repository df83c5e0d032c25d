"""Runs the controllers against any API server, over HTTP; imports nothing of the API server."""

import logging
from dataclasses import replace

from podwire import controllers
from podwire.cluster import component_endpoints, tracing
from podwire.cluster.client_metrics import MeteredHttp, host_of
from podwire.cluster.component_endpoints import Endpoint
from podwire.controllers import work_queue
from podwire.controllers.leader_election import Election, LostLease
from podwire.controllers.registry import ALL
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.prometheus import Metrics
from podwire.trace.participants import API_SERVER, CONTROLLERS
from podwire.transports import http_client
from podwire.transports.clock import SystemClock

_log = logging.getLogger("podwire.controllers")


async def over_http(
    access: Access,
    root_ca: str,
    names: frozenset[str] = ALL,
    election: Election | None = None,
    endpoint: Endpoint | None = None,
) -> None:
    """Works until cancelled; a server that does not answer is retried. Starts again when the lease is lost."""
    tap = tracing.api_tap(CONTROLLERS)
    metrics = Metrics()
    metrics.collect(work_queue.METRICS.lines)
    endpoint = endpoint and replace(endpoint, client_ca=access.ca)
    async with (
        http_client.connect(access, user_agent="podwire-controllers", tap=tap, callee=API_SERVER) as http,
        component_endpoints.serving(endpoint, Client(http), metrics, SystemClock()),
    ):
        client = Client(MeteredHttp(http, metrics, host_of(access.server)))
        _log.info("controllers are running", extra={"url": access.server})
        while True:
            feed = controllers.MetadataInformer(client)
            try:
                await controllers.run(client, feed, SystemClock(), root_ca=root_ca, names=names, election=election)
            except* LostLease as lost:
                _log.warning("controllers lost their lease", extra={"error": str(lost.exceptions[0])})
