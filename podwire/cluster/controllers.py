"""Runs the controllers inside the API server's process: over its own front door, but without a wire."""

from podwire import controllers
from podwire.apiserver import Assembled
from podwire.apiserver.users import MASTERS
from podwire.cluster.feed import StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate

IDENTITY = Certificate("system:kube-controller-manager", (MASTERS,))


async def in_process(assembled: Assembled) -> None:
    """Work until cancelled."""
    engine = assembled.engine
    client = Client(LoopbackHttp(assembled.server.handle, IDENTITY))
    feed = StoreFeed(engine.store, engine.registry)
    await controllers.run(client, feed, engine.clock, root_ca=assembled.pki.authority_pem.decode())
