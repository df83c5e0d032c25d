"""Answers and conversations that go through a relay, over real sockets on both sides."""

import asyncio
import socket

import aiohttp
import pytest

from podwire.protocols.k8sapi.server_side import Request, Response, Stream, Upgrade
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.http_relay import as_messages, carry

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as opened:
        yield opened


def ask(protocols=V5):
    return Request(method="GET", path="/", headers={"upgrade": "websocket", "sec-websocket-protocol": protocols})


async def test_an_answer_comes_through_as_it_is_made(relay, served):
    more = asyncio.Event()

    async def chunks():
        yield b"first\n"
        await more.wait()
        yield b"second\n"

    async def handler(_request):
        return Stream(chunks=chunks(), content_type="text/plain")

    answer = await relay.answer("GET", f"{await served(handler)}/log?follow=true")
    assert isinstance(answer, Stream)
    assert (answer.status, answer.content_type) == (200, "text/plain")
    assert await anext(answer.chunks) == b"first\n"
    more.set()
    assert [chunk async for chunk in answer.chunks] == [b"second\n"]


async def test_path_query_method_and_body_arrive(relay, served):
    seen = []

    async def handler(request):
        seen.append((request.method, request.path, request.query, await request.read(100)))
        return Response(status=201)

    answer = await relay.answer("POST", f"{await served(handler)}/a%2Fb/c?x=1&x=%26", b"body")
    assert [chunk async for chunk in answer.chunks] == []
    assert seen == [("POST", "/a%2Fb/c", {"x": ["1", "&"]}, b"body")]


async def test_a_refusal_is_whole(relay, served):
    async def handler(_request):
        return Response(status=404, body=b"not here", content_type="text/plain")

    answer = await relay.answer("GET", await served(handler))
    assert answer == Response(status=404, body=b"not here", content_type="text/plain")


async def test_a_truncated_answer_stays_truncated(relay):
    async def half(_reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(half, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        answer = await relay.answer("GET", f"http://127.0.0.1:{port}/")
        with pytest.raises(ConnectionError):
            assert [chunk async for chunk in answer.chunks] == [b"hello"]


async def test_an_unreachable_backend_has_the_text_of_gos_net_package(relay):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    where = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    with pytest.raises(ApiError) as raised:
        await relay.answer("GET", f"http://127.0.0.1:{port}/x?y=1")
    assert (raised.value.code, raised.value.message) == (500, f'Get "http://127.0.0.1:{port}/x?y=1": {where}')
    with pytest.raises(ApiError) as raised:
        await relay.conversation(f"http://127.0.0.1:{port}/x", ask())
    assert raised.value.message == f"error dialing backend: {where}"


@pytest.mark.parametrize("relay", [0.1], indirect=True)
async def test_a_silent_backend_times_out(relay):
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ApiError, match=rf"127.0.0.1:{port}: no answer within 0.1s"):
            await relay.answer("GET", f"http://127.0.0.1:{port}/")
        with pytest.raises(ApiError, match=r"error dialing backend: .* no answer"):
            await relay.conversation(f"http://127.0.0.1:{port}/", ask())


def talking(run, protocols=(V5, V4)):
    async def handler(_request):
        return Upgrade(protocols=protocols, run=run)

    return handler


@pytest.fixture
async def through(relay, served):
    """`await through(run)` is the URL of a relay before a server whose conversations `run` leads."""

    async def start(run, protocols=(V5, V4)):
        far = await served(talking(run, protocols))

        async def handler(request):
            return await relay.conversation(f"{far}/exec", request)

        return await served(handler)

    return start


async def echo(peer):
    while (message := await peer.receive()) is not None:
        await peer.send(message if isinstance(message, bytes) else message.encode())


async def test_a_conversation_goes_through_both_ways(through, session):
    async with session.ws_connect(await through(echo), protocols=[V5]) as near:
        assert near.protocol == V5
        for message in (b"\0hello", b"\xff\0", b"\0" + b"x" * 32768):
            await near.send_bytes(message)
            assert await near.receive_bytes() == message


async def test_the_far_end_is_the_end(through, session):
    async def once(peer):
        await peer.send(b"\3done")

    async with session.ws_connect(await through(once), protocols=[V4, V5]) as near:
        assert near.protocol == V4
        assert await near.receive_bytes() == b"\3done"
        assert (await near.receive()).type is aiohttp.WSMsgType.CLOSE
        assert near.close_code == 1000


async def test_a_failed_backend_closes_with_an_error_code(through, session):
    async def broken(peer):
        await peer.close(1011)

    async with session.ws_connect(await through(broken), protocols=[V5]) as near:
        assert (await near.receive()).type is aiohttp.WSMsgType.CLOSE
        assert near.close_code == 1011


async def test_a_client_that_goes_is_gone_on_the_far_side_too(through, session):
    gone = asyncio.Event()

    async def run(peer):
        assert await peer.receive() == b"\0hi"
        assert await peer.receive() is None
        gone.set()

    async with session.ws_connect(await through(run), protocols=[V5]) as near:
        await near.send_bytes(b"\0hi")
    async with asyncio.timeout(20):
        await gone.wait()


async def test_a_half_close_is_not_sent_to_a_side_without_v5(through, session):
    seen = []

    async def run(peer):
        assert peer.protocol == V4
        while (message := await peer.receive()) is not None:
            seen.append(message)
            await peer.send(message)

    async with session.ws_connect(await through(run, protocols=(V4,)), protocols=[V5]) as near:
        assert near.protocol == V5
        await near.send_bytes(b"\xff\0")
        await near.send_bytes(b"\0x")
        assert await near.receive_bytes() == b"\0x"
    assert seen == [b"\0x"]


async def test_a_refused_handshake_is_the_answer(relay, served):
    async def handler(_request):
        return Response(status=500, body=b'container not found ("c")\n', content_type="text/plain")

    answer = await relay.conversation(await served(handler), ask())
    assert answer == Response(status=500, body=b'container not found ("c")\n', content_type="text/plain")


@pytest.mark.parametrize("protocols", ["", "v3.channel.k8s.io"])
async def test_an_unsupported_subprotocol_is_rejected_before_the_backend_is_called(relay, protocols):
    with pytest.raises(ApiError, match="no subprotocol of") as raised:
        await relay.conversation("http://127.0.0.1:1/", ask(protocols))
    assert raised.value.code == 400


async def test_a_backend_connection_is_closed_if_the_client_never_upgrades(relay, served):
    left = asyncio.Event()

    async def run(peer):
        assert await peer.receive() is None
        left.set()

    upgrade = await relay.conversation(await served(talking(run)), ask())
    assert isinstance(upgrade, Upgrade)
    await upgrade.release()
    async with asyncio.timeout(20):
        await left.wait()


STATUS = b'\3{"metadata":{},"status":"Success"}'
FAILURE = (
    b'\3{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}'
)


@pytest.mark.parametrize("code", [1001, 1008, 1011])
async def test_an_outcome_is_not_lost_when_the_backend_closes_with_another_code(through, session, code):
    async def run(peer):
        await peer.send(FAILURE)
        await peer.close(code)

    async with session.ws_connect(await through(run), protocols=[V5]) as near:
        assert await near.receive_bytes() == FAILURE
        assert (await near.receive()).type is aiohttp.WSMsgType.CLOSE
        assert near.close_code == 1000


async def test_output_and_outcome_arrive_from_a_backend_that_accepts_no_more_input():
    """Input that the backend does not accept any more must not end the conversation."""
    rejected = asyncio.Event()

    class Near:
        protocol = V5
        closed = None

        def __init__(self):
            self.sent = []

        async def receive(self):
            if rejected.is_set():
                await asyncio.Event().wait()
            return b"\0input"

        async def send(self, data):
            self.sent.append(data)

        async def close(self, code=1000):
            self.closed = code

    class Far:
        protocol = V5
        ended_well = True

        def __init__(self):
            self.messages = [b"\1output", STATUS]

        async def receive(self):
            await rejected.wait()
            await asyncio.sleep(0.01)
            return self.messages.pop(0) if self.messages else None

        async def send(self, _data):
            rejected.set()
            raise ConnectionResetError("closing")

    near = Near()
    async with asyncio.timeout(20):
        await carry(near, Far())
    assert (near.sent, near.closed) == ([b"\1output", STATUS], None)


@pytest.mark.parametrize(
    ("protocol", "asked", "answered", "end"),
    [
        ("channel.k8s.io", b"\0in", [b"\1in"], []),
        ("base64.channel.k8s.io", "0aW4=", ["1aW4="], []),
        ("v4.base64.channel.k8s.io", "0aW4=", ["1aW4="], ["3eyJtZXRhZGF0YSI6e30sInN0YXR1cyI6IlN1Y2Nlc3MifQ=="]),
    ],
)
async def test_a_client_may_speak_an_older_subprotocol_or_base64(through, session, protocol, asked, answered, end):
    async def run(peer):
        message = await peer.receive()
        await peer.send(b"\1" + message[1:])
        await peer.send(STATUS)

    async with session.ws_connect(await through(run), protocols=[protocol]) as near:
        assert near.protocol == protocol
        await (near.send_str if isinstance(asked, str) else near.send_bytes)(asked)
        messages = [message.data async for message in near]
    assert messages == [*answered, *end]


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("channel.k8s.io", b"\3command terminated with non-zero exit code: 3"),
        ("base64.channel.k8s.io", "3Y29tbWFuZCB0ZXJtaW5hdGVkIHdpdGggbm9uLXplcm8gZXhpdCBjb2RlOiAz"),
    ],
)
async def test_a_client_of_the_first_subprotocol_gets_a_failure_as_a_sentence(through, session, protocol, message):
    async def run(peer):
        await peer.send(FAILURE[:20])
        await peer.send(b"\3" + FAILURE[20:])

    async with session.ws_connect(await through(run), protocols=[protocol]) as near:
        assert [received.data async for received in near] == [message]


async def test_text_that_is_not_base64_ends_the_conversation(through, session):
    async with session.ws_connect(await through(echo), protocols=["base64.channel.k8s.io"]) as near:
        await near.send_str("0***")
        assert (await near.receive()).type is aiohttp.WSMsgType.CLOSE
        assert near.close_code == 1003


@pytest.mark.parametrize(
    ("protocols", "messages"),
    [
        (("binary.k8s.io",), [b"", b"line 1\n", b"line 2\n"]),
        ((), [b"", b"line 1\n", b"line 2\n"]),
        (("base64.binary.k8s.io",), ["", "bGluZSAxCg==", "bGluZSAyCg=="]),
    ],
)
async def test_a_stream_of_bytes_is_served_over_a_websocket(served, session, protocols, messages):
    async def chunks():
        yield b"line 1\n"
        yield b"line 2\n"

    async def handler(_request):
        return as_messages(Stream(chunks=chunks()))

    async with session.ws_connect(await served(handler), protocols=protocols) as near:
        assert [message.data async for message in near] == messages
        assert near.close_code == 1000


async def test_a_stream_ends_when_its_websocket_client_goes(served, session):
    ended = asyncio.Event()

    async def chunks():
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def handler(_request):
        return as_messages(Stream(chunks=chunks()))

    async with session.ws_connect(await served(handler), protocols=["binary.k8s.io"]) as near:
        assert await near.receive_bytes() == b""
        assert await near.receive_bytes() == b"first"
    async with asyncio.timeout(20):
        await ended.wait()
