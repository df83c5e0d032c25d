"""WebSockets over real sockets, against two clients: aiohttp's, and the one that the official client uses."""

import asyncio
import socket

import aiohttp
import pytest
import websocket

from podwire.protocols.k8sapi.server_side import Request, Response, Upgrade
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.transports.http_connection import HttpLimits
from podwire.transports.http_server import serve
from podwire.transports.http_websocket import choose

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"


@pytest.fixture
async def served():
    """`await served(run, …)` gives a server whose every answer is an upgrade; closed after the test."""
    servers = []

    async def start(run, protocols=(V5, V4), limits=None, **options):
        async def handler(_request: Request) -> Upgrade:
            return Upgrade(protocols=protocols, run=run, **options)

        server = await serve(handler, limits=limits)
        servers.append(server)
        return server

    yield start
    for item in servers:
        await item.close(0.5)


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


def url(server) -> str:
    return f"http://127.0.0.1:{server.port}/exec"


async def echo(peer):
    while (message := await peer.receive()) is not None:
        await peer.send(message if isinstance(message, bytes) else b"text:" + message.encode())


async def test_messages_go_both_ways_until_the_client_closes(served, session):
    ended = asyncio.Event()

    async def run(peer):
        assert peer.protocol == V5
        await echo(peer)
        ended.set()

    server = await served(run)
    async with session.ws_connect(url(server), protocols=["v6.channel.k8s.io", V5, V4]) as client:
        assert client.protocol == V5
        for item in (b"", b"\x00ls\n", b"x" * 500_000):
            await client.send_bytes(item)
            assert await client.receive_bytes() == item
        await client.send_str("grüße")
        assert await client.receive_bytes() == "text:grüße".encode()
    async with asyncio.timeout(30):
        await ended.wait()


def test_websocket_client_takes_part_too():
    async def play():
        async def handler(_request: Request) -> Upgrade:
            return Upgrade(protocols=(V4,), run=echo)

        server = await serve(handler)
        try:
            return await asyncio.to_thread(talk, server.port)
        finally:
            await server.close(0.5)

    def talk(port: int):
        client = websocket.create_connection(f"ws://127.0.0.1:{port}/x", subprotocols=[V4], timeout=30)
        client.ping(b"are you there")
        client.send_binary(b"\x00hello")
        kinds = [client.recv_data_frame(control_frame=True) for _ in range(2)]
        chosen = client.getsubprotocol()
        client.close(timeout=2)
        return chosen, [(opcode, frame.data) for opcode, frame in kinds]

    assert asyncio.run(play()) == (
        V4,
        [(websocket.ABNF.OPCODE_PONG, b"are you there"), (websocket.ABNF.OPCODE_BINARY, b"\x00hello")],
    )


@pytest.mark.parametrize(
    ("offered", "protocols", "chosen"),
    [
        pytest.param("v5.channel.k8s.io", (V5, V4), V5, id="one"),
        pytest.param("x, v4.channel.k8s.io , v5.channel.k8s.io", (V5, V4), V4, id="the client's order decides"),
        pytest.param("", (V5, ""), "", id="a client that names none, where none is fine"),
    ],
)
def test_a_subprotocol_is_agreed_on(offered, protocols, chosen):
    headers = {"sec-websocket-protocol": offered} if offered else {}
    assert choose(headers, protocols) == chosen


@pytest.mark.parametrize(
    ("offered", "protocols"),
    [
        pytest.param("v1.channel.k8s.io", (V5, V4), id="another one"),
        pytest.param("V5.CHANNEL.K8S.IO", (V5, V4), id="names are exact"),
        pytest.param("", (V5, V4), id="none"),
        pytest.param("v5.channel.k8s.io", (), id="none is served"),
    ],
)
def test_without_a_common_subprotocol_the_upgrade_is_rejected(offered, protocols):
    with pytest.raises(ApiError) as caught:
        choose({"sec-websocket-protocol": offered} if offered else {}, protocols)
    assert caught.value.reason is Reason.BAD_REQUEST


async def test_a_client_without_a_subprotocol_in_common_is_refused_before_the_upgrade(served, session):
    server = await served(echo)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await session.ws_connect(url(server), protocols=["v1.channel.k8s.io"])
    assert caught.value.status == 400
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": "v1.channel.k8s.io"}
    async with session.get(url(server), headers=headers) as response:
        result = await response.json()
    assert result["kind"] == "Status"
    assert (
        result["message"]
        == "no subprotocol of v1.channel.k8s.io is served here, but v5.channel.k8s.io, v4.channel.k8s.io"
    )


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        pytest.param({}, "an upgrade to one is required", id="no upgrade"),
        pytest.param({"Upgrade": "SPDY/3.1", "Connection": "Upgrade"}, "an upgrade to one is required", id="SPDY"),
        pytest.param(
            {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": V5},
            "violates RFC 6455",
            id="no key",
        ),
        pytest.param(
            {"Upgrade": "websocket", "Sec-WebSocket-Protocol": V5, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="},
            "violates RFC 6455",
            id="no connection header",
        ),
    ],
)
async def test_an_invalid_handshake_is_rejected(served, session, headers, message):
    server = await served(echo)
    async with session.get(url(server), headers=headers) as response:
        assert response.status == 400
        assert message in (await response.json())["message"]


async def test_subprotocols_may_come_in_several_headers(served):
    server = await served(echo)
    head = (
        "GET /x HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: other\r\n"
        f"Sec-WebSocket-Protocol: {V4}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode())
    answer = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.close()
    assert answer.startswith("HTTP/1.1 101 ")
    assert f"Sec-WebSocket-Protocol: {V4}\r\n" in answer
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer


async def test_when_the_conversation_ends_everything_sent_arrives_before_the_close(served, session):
    async def run(peer):
        for number in range(200):
            await peer.send(number.to_bytes(2) * 4000)

    server = await served(run)
    async with session.ws_connect(url(server), protocols=[V5]) as client:
        got = [message.data async for message in client]
        assert client.close_code == 1000
    assert got == [number.to_bytes(2) * 4000 for number in range(200)]


async def test_the_conversation_may_close_with_a_code_of_its_own(served, session):
    async def run(peer):
        await peer.close(4001)
        assert await peer.receive() is None
        with pytest.raises(ConnectionError):
            await peer.send(b"late")

    server = await served(run)
    async with session.ws_connect(url(server), protocols=[V5]) as client:
        assert (await client.receive()).data == 4001


async def test_a_conversation_that_fails_is_logged_and_ends_with_1011(served, session, caplog):
    async def run(_peer):
        raise KeyError("secret")

    server = await served(run)
    async with session.ws_connect(url(server), protocols=[V5]) as client:
        ended = await client.receive()
        assert (ended.data, ended.extra) == (1011, "")
    assert "KeyError: 'secret'" in caplog.text


async def test_a_message_above_the_limit_ends_it_with_1009(served, session):
    got = []

    async def run(peer):
        got.append(await peer.receive())

    server = await served(run, max_message=1000)
    async with session.ws_connect(url(server), protocols=[V5]) as client:
        await client.send_bytes(b"x" * 1001)
        assert (await client.receive()).data == 1009
    assert got == [None]


@pytest.mark.parametrize("wait", ["receive", "sleep"])
async def test_a_peer_that_vanishes_ends_the_conversation(served, session, wait):
    ended = asyncio.Event()

    async def run(peer):
        try:
            await (peer.receive() if wait == "receive" else asyncio.sleep(60))
        finally:
            ended.set()

    server = await served(run)
    client = await session.ws_connect(url(server), protocols=[V5])
    client._response.connection.transport.abort()
    async with asyncio.timeout(30):
        await ended.wait()


async def test_a_server_that_stops_closes_its_sockets_with_1001(served, session):
    async def run(peer):
        await peer.send(b"hello")
        await asyncio.sleep(60)

    server = await served(run)
    async with session.ws_connect(url(server), protocols=[V5]) as client:
        assert await client.receive_bytes() == b"hello"
        async with asyncio.timeout(20):
            closing = asyncio.create_task(server.close(30))
            assert (await client.receive()).data == 1001
            await closing


async def test_closing_does_not_wait_for_a_silent_peer(served):
    async def run(peer):
        await peer.send(b"bye")

    server = await served(run, limits=HttpLimits(linger_seconds=0.2))
    client = await asyncio.to_thread(
        websocket.create_connection, f"ws://127.0.0.1:{server.port}/x", subprotocols=[V5], timeout=30
    )
    async with asyncio.timeout(20):
        await server.close(30)
    client.sock.close()


async def test_a_slow_peer_slows_the_conversation_down(served):
    sent = 0

    async def run(peer):
        nonlocal sent
        while True:
            await peer.send(b"x" * 65536)
            sent += 65536

    server = await served(run)
    client = await asyncio.to_thread(
        websocket.create_connection,
        f"ws://127.0.0.1:{server.port}/x",
        subprotocols=[V5],
        timeout=30,
        sockopt=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)],
    )
    before, most = 0, 16 * 1024 * 1024
    while sent == 0 or before < sent < most:
        before = sent
        await asyncio.sleep(0.2)
    client.sock.close()
    assert sent < most


async def test_a_server_still_answers_plainly_beside_its_sockets(session):
    async def handler(request: Request):
        return Upgrade(protocols=(V5,), run=echo) if request.path == "/exec" else Response(status=200, body=b"{}")

    server = await serve(handler)
    try:
        async with session.ws_connect(url(server), protocols=[V5]) as client:
            async with session.get(f"http://127.0.0.1:{server.port}/other") as response:
                assert response.status == 200
            await client.send_bytes(b"x")
            assert await client.receive_bytes() == b"x"
    finally:
        await server.close(0.5)


@pytest.mark.parametrize("headers", [{}, {"Upgrade": "websocket", "Connection": "Upgrade"}], ids=["plain", "broken"])
async def test_the_upgrade_is_released_when_the_handshake_fails(served, session, headers):
    released = asyncio.Event()

    async def release():
        released.set()

    server = await served(echo, release=release)
    async with session.get(url(server), headers=headers) as answer:
        assert answer.status == 400
    async with asyncio.timeout(20):
        await released.wait()


async def test_the_upgrade_is_released_at_the_end(served, session):
    released = asyncio.Event()

    async def release():
        released.set()

    server = await served(echo, release=release)
    async with session.ws_connect(url(server), protocols=[V5]) as websocket:
        await websocket.send_bytes(b"hi")
        assert await websocket.receive_bytes() == b"hi"
        assert not released.is_set()
    async with asyncio.timeout(20):
        await released.wait()
