"""Runs the controllers against any API server, over HTTP; imports nothing of the API server."""

import logging

from podwire import controllers
from podwire.cluster import tracing
from podwire.controllers.leader_election import Election, LostLease
from podwire.controllers.registry import ALL
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.trace.participants import API_SERVER, CONTROLLERS
from podwire.transports import http_client
from podwire.transports.clock import SystemClock

_log = logging.getLogger("podwire.controllers")


async def over_http(
    access: Access, root_ca: str, names: frozenset[str] = ALL, election: Election | None = None
) -> None:
    """Works until cancelled; a server that does not answer is retried. Starts again when the lease is lost."""
    tap = tracing.api_tap(CONTROLLERS)
    async with http_client.connect(access, user_agent="podwire-controllers", tap=tap, callee=API_SERVER) as http:
        client = Client(http)
        _log.info("controllers are running", extra={"url": access.server})
        while True:
            feed = controllers.MetadataInformer(client)
            try:
                await controllers.run(client, feed, SystemClock(), root_ca=root_ca, names=names, election=election)
            except* LostLease as lost:
                _log.warning("controllers lost their lease", extra={"error": str(lost.exceptions[0])})
