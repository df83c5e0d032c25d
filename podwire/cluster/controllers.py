"""Runs the controllers inside the API server's process: over its own front door, but without a wire."""

import asyncio
import logging

from podwire import controllers
from podwire.apiserver import Assembled
from podwire.apiserver.identity.users import MASTERS
from podwire.cluster import tracing
from podwire.cluster.loopback import LoopbackHttp
from podwire.cluster.store_feed import StoreFeed
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.trace.participants import API_SERVER
from podwire.transports.tapped_http import tapped_handler

_log = logging.getLogger("podwire.controllers")

IDENTITY = Certificate("system:kube-controller-manager", (MASTERS,))


RESTART = 1.0
"""Seconds until controllers that failed begin anew."""


async def in_process(assembled: Assembled) -> None:
    """Work until cancelled. A fault in a controller is told and begun anew; it never takes the API server with it."""
    while True:
        try:
            await _run(assembled)
        except Exception:  # noqa: BLE001 - whatever it is, the server goes on
            _log.exception("a controller failed; all begin anew")
        await asyncio.sleep(RESTART)


async def _run(assembled: Assembled) -> None:
    engine = assembled.engine
    handler = tapped_handler(assembled.server.handle, tracing.tap(API_SERVER), API_SERVER)
    client = Client(LoopbackHttp(handler, IDENTITY, "podwire-controllers"))
    feed = StoreFeed(engine.store, engine.registry)
    await controllers.run(client, feed, engine.clock, root_ca=assembled.pki.authority_pem.decode())
