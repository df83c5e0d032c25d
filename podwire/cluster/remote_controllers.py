"""Runs the controllers against any API server, over HTTP; loads nothing of the server's own code."""

import logging

from podwire import controllers
from podwire.cluster import tracing
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.trace.participants import API_SERVER, CONTROLLERS
from podwire.transports import http_client
from podwire.transports.clock import SystemClock

_log = logging.getLogger("podwire.controllers")


async def over_http(access: Access, root_ca: str) -> None:
    """Work until cancelled; a server that does not answer is asked again."""
    tap = tracing.api_tap(CONTROLLERS)
    async with http_client.connect(access, user_agent="podwire-controllers", tap=tap, callee=API_SERVER) as http:
        client = Client(http)
        _log.info("working", extra={"url": access.server})
        await controllers.run(client, controllers.WatchedFeed(client), SystemClock(), root_ca=root_ca)
