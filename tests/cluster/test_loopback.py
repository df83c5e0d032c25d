import pytest

from podwire.cluster.loopback import LoopbackHttp
from podwire.protocols.k8sapi.client_side import Interrupted
from podwire.protocols.k8sapi.server_side import Certificate, Request, Upgrade


async def test_a_websocket_does_not_come_without_a_wire():
    async def handler(_request: Request) -> Upgrade:
        return Upgrade(protocols=("v5.channel.k8s.io",), run=None)

    http = LoopbackHttp(handler, Certificate("admin"))
    with pytest.raises(Interrupted, match="GET /exec: upgrades need a real connection"):
        await http.request("GET", "/exec")
