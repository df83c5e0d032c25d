"""Connections that leave HTTP, over real sockets: served here, dialled here, and carried by a relay between."""

import asyncio
import os
import socket
import ssl

import aiohttp
import pytest

from podwire.protocols.k8sapi.server_side import Request, Response, Tunnel, Upgrade
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import http_upgrade_client
from podwire.transports.http_relay import relays
from podwire.transports.http_server import serve
from podwire.transports.http_websocket_client import HandshakeRefused

SPDY = "SPDY/3.1"
V4, PORTS = "v4.channel.k8s.io", "portforward.k8s.io"
SECONDS = 30.0


async def echo(wire):
    while data := await wire.read(1000):
        await wire.write(data)


def echoing(_request: Request):
    return asyncio.sleep(0, Tunnel(protocol=SPDY, run=echo, headers=(("X-Stream-Protocol-Version", V4),)))


async def test_bytes_go_both_ways_until_the_client_closes(served):
    ended = asyncio.Event()

    async def run(wire):
        await echo(wire)

    async def release():
        ended.set()

    async def handler(request):
        assert request.headers["x-stream-protocol-version"] == f"{V4}, {PORTS}"
        assert (request.method, request.path, request.query) == ("POST", "/exec", {"a": ["b"]})
        return Tunnel(protocol=SPDY, run=run, release=release)

    far = await http_upgrade_client.dial(f"{await served(handler)}/exec?a=b", [V4, PORTS], seconds=SECONDS)
    assert far.version == ""
    await far.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await far.read(100) == b"GET / HTTP/1.1\r\n\r\n", "nobody parses it"
    await far.close()
    await ended.wait()


async def test_much_goes_both_ways_though_neither_side_reads_first(served):
    far = await http_upgrade_client.dial(await served(echoing), [V4], seconds=SECONDS)
    assert far.version == V4
    assert await echoed(far) == 10_000_000
    await far.close()


async def echoed(far, size=10_000_000):
    """How much of what is sent comes back as it was."""
    content, back = os.urandom(size), bytearray()

    async def send():
        for start in range(0, size, 100_000):
            await far.write(content[start : start + 100_000])

    async with asyncio.TaskGroup() as group:
        group.create_task(send())
        while len(back) < size:
            back += await far.read(100_000)
    return size if back == content else -1


async def test_the_connection_is_closed_when_the_conversation_ends_or_fails(served, caplog):
    async def handler(request):
        async def run(wire):
            await wire.write(b"last words")
            if request.path == "/fails":
                raise ValueError("a bug")

        return Tunnel(protocol=SPDY, run=run)

    url = await served(handler)
    for path in ("/ends", "/fails"):
        far = await http_upgrade_client.dial(url + path, [], seconds=SECONDS)
        assert await far.read(100) == b"last words"
        assert await far.read(100) == b""
        await far.close()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "tunnel handler failed unexpectedly"
    ]


async def test_a_server_that_stops_ends_its_tunnels():
    server = await serve(echoing)
    far = await http_upgrade_client.dial(f"http://127.0.0.1:{server.port}/", [], seconds=SECONDS)
    await far.write(b"there")
    assert await far.read(100) == b"there"
    await server.close(SECONDS)
    assert await far.read(100) == b""
    await far.close()


@pytest.mark.parametrize(
    ("headers", "data", "why"),
    [
        ({}, None, "an upgrade to it is required"),
        ({"Upgrade": "websocket", "Connection": "Upgrade"}, None, "an upgrade to it is required"),
        ({"Upgrade": SPDY, "Connection": "Upgrade"}, b"body", "has no body"),
    ],
    ids=["none", "another", "body"],
)
async def test_an_invalid_upgrade_is_rejected_and_the_tunnel_released(served, headers, data, why):
    released = asyncio.Event()

    async def release():
        released.set()

    async def handler(_request):
        return Tunnel(protocol=SPDY, run=echo, release=release)

    async with (
        aiohttp.ClientSession() as session,
        session.post(await served(handler), headers=headers, data=data) as answer,
    ):
        assert answer.status == 400
        assert why in await answer.text()
    await released.wait()


async def test_a_rejection_keeps_its_body(served):
    async def handler(_request):
        return Response(status=404, body=b"no such conversation", content_type="text/plain")

    with pytest.raises(HandshakeRefused) as raised:
        await http_upgrade_client.dial(await served(handler), [], seconds=SECONDS)
    assert (raised.value.status, raised.value.body) == (404, b"no such conversation")


def asked(**headers) -> Request:
    return Request(method="POST", path="/", headers={each.replace("_", "-"): value for each, value in headers.items()})


@pytest.fixture
async def carried(served, relay):
    """`await carried(handler)` is the URL of a server that carries everything on to one with this handler."""

    async def start(handler):
        far = await served(handler)
        return await served(lambda request: relay.tunnel(far, request))

    return start


async def test_a_relay_carries_spdy_as_it_is(carried):
    far = await http_upgrade_client.dial(await carried(echoing), [V4], seconds=SECONDS)
    assert far.version == V4, "the client gets what the far side chose"
    assert await echoed(far) == 10_000_000
    await far.close()


async def test_a_relay_takes_spdy_out_of_a_websocket(carried):
    async def handler(request):
        assert request.headers["x-stream-protocol-version"] == PORTS
        return Tunnel(protocol=SPDY, run=echo, headers=(("X-Stream-Protocol-Version", PORTS),))

    url = await carried(handler)
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=[f"{SPDY}+{PORTS}"]) as client,
    ):
        assert client.protocol == f"{SPDY}+{PORTS}"
        await client.send_bytes(b"abc" * 100_000)
        back = b""
        while len(back) < 300_000:
            back += await client.receive_bytes()
        assert back == b"abc" * 100_000


async def test_when_the_far_side_is_done_so_is_the_near_one(carried):
    async def handler(_request):
        async def run(wire):
            await wire.write(await wire.read(10))

        return Tunnel(protocol=SPDY, run=run)

    far = await http_upgrade_client.dial(await carried(handler), [], seconds=SECONDS)
    await far.write(b"once")
    assert await far.read(100) == b"once"
    assert await far.read(100) == b""
    await far.close()


async def test_a_relay_passes_on_rejections_and_reports_an_unreachable_backend(relay, served):
    async def handler(_request):
        return Response(status=403, body=b"not you", content_type="text/plain")

    answer = await relay.tunnel(await served(handler), asked(upgrade=SPDY))
    assert isinstance(answer, Response)
    assert (answer.status, answer.body) == (403, b"not you")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ApiError, match=f"error dialing backend: dial tcp 127.0.0.1:{port}: connect: connection"):
        await relay.tunnel(f"http://127.0.0.1:{port}/", asked(upgrade=SPDY))


async def test_tls_to_a_plain_server_fails(served):
    url = (await served(echoing)).replace("http:", "https:")
    async with relays(ssl.create_default_context) as relay:
        with pytest.raises(ApiError, match="error dialing backend: tls: "):
            await relay.tunnel(url, asked(upgrade=SPDY))


async def test_the_backend_connection_is_closed_when_the_upgrade_fails(relay, served):
    gone = asyncio.Event()

    async def handler(_request):
        async def run(wire):
            await echo(wire)

        async def release():
            gone.set()

        return Tunnel(protocol=SPDY, run=run, release=release)

    answer = await relay.tunnel(await served(handler), asked(upgrade=SPDY))
    assert not isinstance(answer, Response | Upgrade)
    await answer.release()
    await gone.wait()
