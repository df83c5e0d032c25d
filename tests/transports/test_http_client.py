"""The client's HTTP over real sockets: identity, long streams, broken servers."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from podwire.protocols.k8sapi.client_side import Interrupted, Unreachable
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.k8sapi.server_side import Request, Response, Stream
from podwire.transports.http_client import MAX_IN_FLIGHT, connect
from podwire.transports.http_server import serve


@pytest.fixture
async def asked():
    return []


@pytest.fixture
async def server(asked):
    async def handler(request: Request):
        asked.append(request)
        if request.path == "/stream":
            return Stream(chunks=_endless())
        body = await request.read(100_000_000)
        return Response(status=200, body=body or b"x" * 20_000_000, headers=(("X-One", "1"),))

    server = await serve(handler)
    yield server
    await server.close(0.1)


async def _endless() -> AsyncIterator[bytes]:
    yield b"first"
    await asyncio.Event().wait()


@pytest.fixture
async def http(server):
    async with connect(Access(server=f"http://127.0.0.1:{server.port}"), user_agent="test/1") as http:
        yield http


async def test_a_request_arrives_unchanged(http, asked):
    query = [("labelSelector", "a in (b,c)"), ("watch", "true")]
    reply = await http.request("POST", "/a%2Fb", query=query, headers={"Content-Type": "x/y"}, body=b"body")
    assert (reply.status, reply.body, reply.headers["x-one"]) == (200, b"body", "1")
    [request] = asked
    assert (request.method, request.path) == ("POST", "/a%2Fb")
    assert request.query == {"labelSelector": ["a in (b,c)"], "watch": ["true"]}
    assert request.headers["user-agent"] == "test/1"
    assert "authorization" not in request.headers


async def test_a_large_answer_comes_whole(http):
    assert len((await http.request("GET", "/")).body) == 20_000_000


async def test_a_stream_is_readable_before_it_ends(http):
    incoming = await http.stream("GET", "/stream")
    assert incoming.status == 200
    assert await incoming.read() == b"first"
    incoming.close()


async def test_a_stream_ends_cleanly_when_the_server_stops(http, server):
    incoming = await http.stream("GET", "/stream")
    assert await incoming.read() == b"first"
    await server.close(1)
    assert await incoming.read() == b""
    incoming.close()


async def test_a_token_file_is_read_again_when_it_was_replaced(server, asked, tmp_path):
    token = tmp_path / "token"
    token.write_text("one\n")
    access = Access(server=f"http://127.0.0.1:{server.port}", token_file=str(token))
    async with connect(access) as http:
        await http.request("POST", "/", body=b"x")
        (tmp_path / "new").write_text("two\n")
        os.replace(tmp_path / "new", token)  # noqa: PTH105 - the call that projected volumes are made of
        await http.request("POST", "/", body=b"x")
        token.unlink()
        await http.request("POST", "/", body=b"x")
    assert [item.headers["authorization"] for item in asked] == ["Bearer one", "Bearer two", "Bearer two"]


async def test_proxies_from_the_environment_are_not_used(server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with connect(Access(server=f"http://127.0.0.1:{server.port}")) as http:
        assert (await http.request("POST", "/", body=b"x")).status == 200


async def test_without_a_listener_the_server_is_unreachable():
    async with connect(Access(server="http://127.0.0.1:1")) as http:
        with pytest.raises(Unreachable, match="GET /x"):
            await http.request("GET", "/x")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", id="half a body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", id="half a chunk"),
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
    ],
)
async def test_an_answer_that_breaks_off_is_interrupted(said):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connect(Access(server=f"http://127.0.0.1:{port}")) as http:
        with pytest.raises(Interrupted):
            await http.request("POST", "/", body=b"x")
    server.close()
    await server.wait_closed()


async def test_many_requests_share_a_few_connections_and_streams_take_none_of_them():
    opened = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"/stream" in head:
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                else:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    counting = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = counting.sockets[0].getsockname()[1]
    async with counting, connect(Access(server=f"http://127.0.0.1:{port}")) as http:
        streams = [await http.stream("GET", "/stream") for _ in range(MAX_IN_FLIGHT + 1)]
        replies = await asyncio.gather(*(http.request("GET", "/") for _ in range(10 * MAX_IN_FLIGHT)))
        assert [reply.body for reply in replies] == [b"ok"] * 10 * MAX_IN_FLIGHT
        assert len(opened) <= len(streams) + MAX_IN_FLIGHT
        for item in streams:
            item.close()
