"""Requests that go through a reverse proxy, over real sockets on both sides."""

import asyncio
import gzip
import socket

import aiohttp
import pytest

from podwire.protocols.k8sapi.server_side import Request, Response, Stream, Tunnel, Upgrade
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.http_forward import forwarder

PREFIX = "/api/v1/namespaces/default/pods/web/proxy"


@pytest.fixture
async def proxied(served):
    """`await proxied(handler)` is the URL of a proxy before a server with this handler."""
    async with forwarder() as forward:

        async def start(handler):
            backend = await served(handler)

            async def through(request):
                query = f"?{request.raw_query}" if request.raw_query else ""
                return await forward.forward(f"{backend}{request.path}{query}", request, prefix=PREFIX)

            return await served(through), backend

        yield start


@pytest.fixture
async def client():
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


async def test_method_path_query_headers_and_body_arrive(proxied, client):
    seen = []

    async def handler(request):
        seen.append((request.method, request.path, request.raw_query, await request.read(100)))
        seen.append(request.headers)
        return Response(status=418, body=b"tea", content_type="text/x", headers=(("X-Own", "1"), ("Server", "pot")))

    url, _ = await proxied(handler)
    headers = {"Authorization": "Bearer x", "X-Mine": "1", "Host": "api", "User-Agent": "me", "Cookie": "a=b"}
    async with client.patch(f"{url}/a%20b/?x=%26&x=1&empty", data=b"body", headers=headers) as answer:
        assert (answer.status, await answer.read()) == (418, b"tea")
        assert (answer.headers["X-Own"], answer.headers["Content-Type"]) == ("1", "text/x")
        assert answer.headers["Content-Length"] == "3"
    assert seen[0] == ("PATCH", "/a%20b/", "x=%26&x=1&empty", b"body")
    got = seen[1]
    assert {name: got.get(name) for name in ("authorization", "x-mine", "host", "user-agent", "cookie")} == {
        "authorization": None, "x-mine": "1", "host": "api", "user-agent": "me", "cookie": "a=b"
    }  # fmt: skip
    assert (got["x-forwarded-for"], got["x-forwarded-uri"]) == ("127.0.0.1", f"{PREFIX}/a%20b/")


async def test_a_large_body_is_streamed_both_ways_at_once(proxied, client):
    async def echo(request):
        return Stream(chunks=request.body(), content_type="application/octet-stream")

    async def sent():
        for _ in range(200):
            yield b"x" * 100_000

    url, _ = await proxied(echo)
    async with client.post(url, data=sent()) as answer:
        size = 0
        async for chunk in answer.content.iter_any():
            size += len(chunk)
    assert size == 20_000_000


async def test_a_slow_reader_slows_the_backend_down(proxied, client):
    produced = 0

    async def endless(_request):
        async def chunks():
            nonlocal produced
            while True:
                produced += 1
                yield b"x" * 65536

        return Stream(chunks=chunks(), content_type="x/y")

    url, _ = await proxied(endless)
    async with client.get(url) as answer:
        await answer.content.readexactly(10)
        before = -1
        while produced != before:  # until nobody takes more
            before = produced
            await asyncio.sleep(0.1)
        assert produced * 65536 < 64_000_000
        answer.close()


@pytest.mark.parametrize("status", [200, 204, 304])
async def test_head_and_statuses_without_body(proxied, client, status):
    async def handler(_request):
        return Response(status=status, body=b"12345" if status == 200 else b"")

    url, _ = await proxied(handler)
    for method in ("HEAD", "GET"):
        async with client.request(method, url) as answer:
            assert answer.status == status
            body = await answer.read()
            if status == 200:
                assert (body, answer.headers["Content-Length"]) == (b"" if method == "HEAD" else b"12345", "5")


async def test_redirects_are_rewritten_and_not_followed(proxied, client):
    async def handler(request):
        return Response(status=302, headers=(("Location", request.option("to")),))

    url, backend = await proxied(handler)
    for location, through in (
        ("/x", f"{PREFIX}/x"),
        (f"{backend}/x", f"{PREFIX}/x"),
        ("https://o/x", "https://o/x"),
        ("rel", "rel"),
    ):
        async with client.get(url, params={"to": location}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, through)


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_links_of_html_pages_are_rewritten(proxied, client, encoding):
    page, through = b'<a href="/x">x</a>', f'<a href="{PREFIX}/x">x</a>'.encode()

    async def handler(_request):
        headers = (("Content-Encoding", "gzip"),) if encoding else ()
        body = gzip.compress(page) if encoding else page
        return Response(status=200, body=body, content_type="text/html; charset=utf-8", headers=headers)

    url, _ = await proxied(handler)
    async with client.get(url) as answer:
        body = await answer.read()
        assert (gzip.decompress(body) if encoding else body) == through


async def test_an_unreachable_backend_is_503_as_upstream_words_it(client):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with forwarder() as forward:
        with pytest.raises(ApiError) as refused:
            await forward.forward(f"http://127.0.0.1:{port}/", Request(method="GET", path="/"), prefix=PREFIX)
    reason = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert (refused.value.code, refused.value.message) == (503, f"error trying to reach service: {reason}")


async def test_a_websocket_is_carried_with_its_subprotocol(proxied, client):
    async def handler(_request):
        async def run(wire):
            while (message := await wire.receive()) is not None:
                await wire.send(message.encode() if isinstance(message, str) else message)

        return Upgrade(protocols=("chat",), run=run)

    url, _ = await proxied(handler)
    async with client.ws_connect(f"{url}/ws?a=b", protocols=("other", "chat")) as wire:
        assert wire.protocol == "chat"
        await wire.send_bytes(b"x" * 500_000)
        assert (await wire.receive_bytes()) == b"x" * 500_000


async def test_any_protocol_can_be_switched_to(proxied):
    async def handler(request):
        async def run(wire):
            while data := await wire.read(1000):
                await wire.write(data.upper())

        assert request.headers["x-version"] == "v1"
        return Tunnel(protocol="Telepathy/2", run=run, headers=(("X-Chosen", "v1"),))

    url, _ = await proxied(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: Telepathy/2\r\nX-Version: v1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"X-Chosen: v1\r\n" in head
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"HELLO"
    writer.close()
    await writer.wait_closed()


async def test_a_refused_switch_is_the_backends_answer(proxied, client):
    async def handler(_request):
        return Response(status=403, body=b"no", content_type="text/plain")

    url, _ = await proxied(handler)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(url)
    assert refused.value.status == 403


async def test_a_backend_that_ignores_a_switch_is_an_error(proxied, client):
    async def handler(_request):
        return Response(status=200, body=b"hi")

    url, _ = await proxied(handler)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(url)
    assert refused.value.status == 500


async def test_a_backend_that_breaks_off_cuts_the_answer(proxied, client):
    async def handler(_request):
        async def chunks():
            yield b"first"
            raise ConnectionResetError("gone")

        return Stream(chunks=chunks(), content_type="x/y")

    url, _ = await proxied(handler)
    with pytest.raises(aiohttp.ClientPayloadError):
        async with client.get(url) as answer:
            await answer.read()
