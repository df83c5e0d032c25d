"""The HTTP server over real sockets: what handlers see, what clients get, how it ends."""

import asyncio
import contextlib
import gzip
import socket
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from podwire.protocols.k8sapi.server_side import BodyTooLarge, Request, Response, Stream
from podwire.protocols.k8sapi.status import ApiError, Reason, not_found
from podwire.transports.http_connection import HttpLimits
from podwire.transports.http_server import serve


@pytest.fixture
async def served():
    """`await served(handler, …)` gives a server that is closed after the test."""
    servers = []

    async def start(handler, **options):
        server = await serve(handler, **options)
        servers.append(server)
        return server

    yield start
    for item in servers:
        await item.close(0.2)


@pytest.fixture
async def session():
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


async def hello(_request: Request) -> Response:
    return Response(status=200, body=b'{"hello":"world"}')


def url(server, path: str) -> str:
    return f"http://127.0.0.1:{server.port}{path}"


async def raw(server, data: bytes, *, seconds: float = 20.0) -> bytes:
    """All that the server answers before it closes the connection; fails when it does not close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answer = b""
    try:
        writer.write(data)
        async with asyncio.timeout(seconds):
            while part := await reader.read(65536):
                answer += part
    except ConnectionResetError:
        pass  # the server closed while we were still sending
    finally:
        writer.close()
    return answer


async def test_a_handler_sees_the_request_unchanged(served, session):
    seen = []

    async def handler(request: Request) -> Response:
        seen.append((request, await request.read(100)))
        return Response(status=201, body=b"{}", headers=(("Warning", '299 - "x"'), ("Warning", '299 - "y"')))

    server = await served(handler)
    asked = url(server, "/api/v1/x?b=2&a=&b=1&c=%2F+d")
    async with session.post(asked, data=b"body", headers={"X-Thing": "One"}) as response:
        assert response.status == 201
        assert response.headers.getall("Warning") == ['299 - "x"', '299 - "y"']
        assert response.headers["Content-Type"] == "application/json"
    [(request, body)] = seen
    assert (request.method, request.path, body) == ("POST", "/api/v1/x", b"body")
    assert dict(request.query) == {"b": ["2", "1"], "a": [""], "c": ["/ d"]}
    assert list(request.query) == ["b", "a", "c"]
    assert request.headers["x-thing"] == "One"
    assert request.certificate is None


async def test_a_header_sent_twice_is_joined(served):
    seen = []

    async def handler(request: Request) -> Response:
        seen.append(request.headers["impersonate-group"])
        return Response(status=200)

    server = await served(handler)
    await raw(
        server,
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nImpersonate-Group: a\r\nimpersonate-group: b\r\n\r\n",
    )
    assert seen == ["a, b"]


async def test_many_requests_share_a_connection(served):
    server = await served(hello)
    one = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert (await raw(server, one * 3 + last)).count(b'{"hello":"world"}') == 4


@pytest.mark.parametrize(
    ("raised", "code", "reason"),
    [
        pytest.param(not_found("pods", "web"), 404, "NotFound", id="what the API refuses"),
        pytest.param(BodyTooLarge(7), 413, "RequestEntityTooLarge", id="a body nobody wanted"),
        pytest.param(ValueError("secret detail"), 500, "InternalError", id="a bug"),
        pytest.param(TimeoutError("secret detail"), 500, "InternalError", id="a deadline nobody caught"),
    ],
)
async def test_any_exception_of_a_handler_is_a_status(served, session, raised, code, reason):
    async def handler(_request: Request) -> Response:
        raise raised

    server = await served(handler)
    async with session.get(url(server, "/")) as response:
        body = await response.read()
        status = msgspec.json.decode(body)
        assert (response.status, status["kind"], status["code"], status["reason"]) == (code, "Status", code, reason)
        assert b"secret" not in body
        assert b"Traceback" not in body


async def test_error_headers_reach_the_client(served, session):
    async def handler(_request: Request) -> Response:
        raise ApiError(Reason.TOO_MANY_REQUESTS, "later", headers=[("Retry-After", "3")])

    server = await served(handler)
    async with session.get(url(server, "/")) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "3")


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_above_the_limit_is_refused_and_the_connection_closed(served, framing):
    calls = []

    async def handler(request: Request) -> Response:
        calls.append(request.path)
        return Response(status=200, body=await request.read(10))

    server = await served(handler)
    second = b"GET /second HTTP/1.1\r\nHost: x\r\n\r\n"
    if framing == "length":
        head, body = b"Content-Length: 11", b"01234567890"
    else:
        head, body = b"Transfer-Encoding: chunked", b"b\r\n01234567890\r\n0\r\n\r\n"
    answer = await raw(server, b"POST /first HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n" + body + second)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert calls == ["/first"]


async def test_a_declared_length_above_the_limit_is_refused_before_the_body_comes(served):
    async def handler(request: Request) -> Response:
        return Response(status=200, body=await request.read(10))

    server = await served(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    async with asyncio.timeout(20):
        assert b" 413 " in await reader.readline()
    writer.close()


async def test_expect_100_continue_is_answered(served):
    async def handler(request: Request) -> Response:
        return Response(status=200, body=await request.read(10))

    server = await served(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    async with asyncio.timeout(20):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert b" 200 " in await reader.readline()
    writer.close()


async def test_a_slow_body_is_cut(served):
    async def handler(request: Request) -> Response:
        return Response(status=200, body=await request.read(10))

    server = await served(handler, limits=HttpLimits(body_seconds=0.05, linger_seconds=0.05))
    answer = await raw(server, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe")
    assert answer.startswith(b"HTTP/1.1 408 ")


SECOND = b"GET /second HTTP/1.1\r\nHost: x\r\n\r\n"


def post(*headers: bytes, body: bytes = b"") -> bytes:
    return (
        b"POST /a HTTP/1.1\r\nHost: x\r\n" + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + body + SECOND
    )


CHUNKED = b"Transfer-Encoding: chunked"
LAST_CHUNK = b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(post(b"Content-Length: 6", CHUNKED, body=LAST_CHUNK), 400, id="a length and chunks"),
        pytest.param(post(CHUNKED, b"Content-Length: 6", body=LAST_CHUNK), 400, id="chunks and a length"),
        pytest.param(post(b"Content-Length: 0", b"Content-Length: 5", body=b"hello"), 400, id="two lengths"),
        pytest.param(post(b"Content-Length: 0, 0"), 400, id="a list of lengths"),
        pytest.param(post(b"Content-Length: +5", body=b"hello"), 400, id="a signed length"),
        pytest.param(post(b"Content-Length: " + b"9" * 30), 400, id="a length beyond 64 bits"),
        pytest.param(post(b"Content-Length : 5", body=b"hello"), 400, id="a space before the colon"),
        pytest.param(post(b"Transfer-Encoding: xchunked", body=LAST_CHUNK), 400, id="an unknown encoding"),
        pytest.param(post(b"Transfer-Encoding: chunked, identity", body=LAST_CHUNK), 400, id="chunked not last"),
        pytest.param(post(CHUNKED, body=b"zz\r\n"), 400, id="a chunk size that is not a number"),
        pytest.param(post(CHUNKED, body=b"5\nhello\r\n0\r\n\r\n"), 400, id="a bare LF after a chunk size"),
        pytest.param(post(CHUNKED, body=b"5;a\nb\r\nhello\r\n0\r\n\r\n"), 400, id="a bare LF in a chunk extension"),
        pytest.param(post(b"X: y\r\n z"), 400, id="a folded header"),
        pytest.param(post(b"X: a\x00b"), 400, id="NUL in a header"),
        pytest.param(post(b"X: a\rb"), 400, id="bare CR in a header"),
        pytest.param(post(b"Host: y"), 400, id="two hosts"),
        pytest.param(b"GET /a HTTP/1.1\r\n\r\n" + SECOND, 400, id="no host"),
        pytest.param(b"GET /a HTTP/1.1\nHost: x\n\n" + SECOND, 400, id="bare LF"),
        pytest.param(b"GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n" + SECOND, 400, id="an absolute target"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" + SECOND, 400, id="a star"),
        pytest.param(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + SECOND, 400, id="a proxy's method"),
        pytest.param(b"GET /a\x00 HTTP/1.1\r\nHost: x\r\n\r\n" + SECOND, 400, id="NUL in the target"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, id="TLS on a plain port"),
        pytest.param(post(b"X: " + b"a" * 100_000), 431, id="a header of 100 KB"),
        pytest.param(post(*(b"X%d: %s" % (n, b"a" * 4000) for n in range(20))), 431, id="80 KB of headers"),
        pytest.param(post(*(b"X%d: y" % n for n in range(1000))), 431, id="1000 headers"),
        pytest.param(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, id="a target of 100 KB"),
    ],
)
async def test_ambiguous_requests_are_rejected_and_nothing_after_them_is_executed(served, data, code):
    calls = []

    async def handler(request: Request) -> Response:
        calls.append(request.path)
        await request.read(1000)
        return Response(status=200)

    server = await served(handler)
    answer = await raw(server, data)
    assert answer.split(maxsplit=2)[1] == b"%d" % code
    assert msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["code"] == code
    assert calls == []


async def test_odd_paths_reach_the_handler_undecoded(served):
    paths = []

    async def handler(request: Request) -> Response:
        paths.append(request.path)
        return Response(status=200)

    server = await served(handler)
    await raw(server, b"GET /api/%2e%2e/..//y;z%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert paths == ["/api/%2e%2e/..//y;z%00"]


async def test_a_request_to_switch_protocols_that_is_declined_ends_the_connection(served):
    server = await served(hello)
    answer = await raw(server, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + SECOND)
    assert answer.count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"", id="nothing sent"),
        pytest.param(b"GET / HTTP/1.1\r\nHos", id="half a head"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHos", id="half a second head"),
    ],
)
async def test_a_head_that_never_ends_is_cut(served, begun):
    server = await served(hello, limits=HttpLimits(head_seconds=0.1, idle_seconds=0.3))
    await raw(server, begun)


async def test_a_head_that_trickles_in_is_cut_on_time(served):
    server = await served(hello, limits=HttpLimits(head_seconds=0.2))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\n")
    async with asyncio.timeout(20):  # a byte comes ten times as often as a head may take, so waiting anew never ends
        while not reader.at_eof():
            writer.write(b"X")
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.02):
                    await reader.read(1)
    writer.close()


async def test_an_idle_connection_is_closed(served):
    server = await served(hello, limits=HttpLimits(idle_seconds=0.1))
    answer = await raw(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_large_bodies_are_compressed_for_clients_that_accept_it(served, session):
    body = b'{"x":"' + b"a" * 200_000 + b'"}'

    async def handler(request: Request) -> Response:
        return Response(status=200, body=body if request.path == "/large" else body[:1000])

    server = await served(handler)
    async with session.get(url(server, "/large"), headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Vary"] == "Accept-Encoding"
        assert gzip.decompress(await response.read()) == body
    async with session.get(url(server, "/large"), headers={"Accept-Encoding": "gzip;q=0, br"}) as response:
        assert "Content-Encoding" not in response.headers
        assert response.headers["Vary"] == "Accept-Encoding"
        assert await response.read() == body
    async with session.get(url(server, "/small"), headers={"Accept-Encoding": "gzip"}) as response:
        assert "Content-Encoding" not in response.headers
        assert await response.read() == body[:1000]


async def test_a_long_body_in_chunks_is_compressed_for_clients_that_accept_it(served, session):
    parts = [b"%d " % number * 10_000 for number in range(20)]

    async def handler(_request: Request) -> Stream:
        async def chunks() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        return Stream(chunks=chunks(), whole=True)

    server = await served(handler)
    async with session.get(url(server, "/"), headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Vary"] == "Accept-Encoding"
        compressed = await response.read()
        assert gzip.decompress(compressed) == b"".join(parts)
    async with session.get(url(server, "/"), headers={"Accept-Encoding": "identity"}) as response:
        assert "Content-Encoding" not in response.headers
        assert await response.read() == b"".join(parts)


async def test_a_head_request_gets_the_length_but_no_body(served):
    server = await served(hello)
    answer = await raw(server, b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"Content-Length: 17" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_has_no_length(served, status):
    async def handler(_request: Request) -> Response:
        return Response(status=status, body=b"forgotten", headers=(("ETag", '"x"'),))

    server = await served(handler)
    answer = await raw(server, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b'ETag: "x"\r\n' in answer
    assert b"Content-Length" not in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_no_header_can_be_smuggled_into_an_answer(served):
    async def handler(_request: Request) -> Response:
        return Response(status=200, headers=(("Warning", "x\r\nSet-Cookie: y"),))

    server = await served(handler)
    answer = await raw(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b" 500 " in answer.partition(b"\r\n")[0]
    assert b"Set-Cookie" not in answer


async def test_an_old_client_is_answered_and_left(served):
    server = await served(hello)
    answer = await raw(server, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"Connection: close" in answer
    assert answer.endswith(b'{"hello":"world"}')


async def test_a_large_answer_ends_when_its_client_disconnects(served):
    done = asyncio.Event()

    async def handler(_request: Request) -> Response:
        done.set()
        return Response(status=200, body=b"x" * 50_000_000)

    server = await served(handler)
    for _ in range(5):
        done.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.read(1000)
        writer.transport.abort()
        await done.wait()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await server.close(grace=60)
    assert loop.time() - began < 30


class Chunks:
    """A stream that the test feeds; knows whether it was closed."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.closed = asyncio.Event()

    async def iterate(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self.queue.get()) is not None:
                yield chunk
        finally:
            self.closed.set()

    async def handler(self, _request: Request) -> Stream:
        return Stream(chunks=self.iterate())


async def test_a_stream_sends_its_headers_at_once_and_each_chunk_as_it_comes(served, session):
    chunks = Chunks()
    server = await served(chunks.handler)
    async with asyncio.timeout(20), session.get(url(server, "/")) as response:
        assert response.status == 200
        for item in (b"one\n", b"two\n"):
            chunks.queue.put_nowait(item)
            assert await response.content.readline() == item
        chunks.queue.put_nowait(None)
        assert await response.content.read() == b""
    assert chunks.closed.is_set()


async def test_a_stream_is_closed_when_its_client_goes_away(served):
    chunks = Chunks()
    server = await served(chunks.handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    async with asyncio.timeout(20):
        await chunks.closed.wait()


async def test_a_client_that_disconnects_during_a_stream_is_not_an_error(served, caplog):
    closed = asyncio.Semaphore(0)

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more\n"
                await asyncio.sleep(0)
        finally:
            closed.release()

    async def handler(_request: Request) -> Stream:
        return Stream(chunks=endless())

    server = await served(handler)
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"more\n")
        writer.transport.abort()
        async with asyncio.timeout(20):
            await closed.acquire()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_connection_that_closes_before_its_stream_begins_is_not_an_error(served, caplog):
    """Between the kernel's report and the cancelled handler there is a moment in which a stream can begin."""

    async def handler(_request: Request) -> Stream:
        server._front.drop_all()
        return Stream(chunks=Chunks().iterate())

    server = await served(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()
    await asyncio.sleep(0.05)  # an error would be logged
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_stream_that_fails_is_cut_so_that_the_client_notices(served, session):
    async def broken() -> AsyncIterator[bytes]:
        yield b"one\n"
        raise ValueError("secret detail")

    async def handler(_request: Request) -> Stream:
        return Stream(chunks=broken())

    server = await served(handler)
    async with session.get(url(server, "/")) as response:
        assert await response.content.readline() == b"one\n"
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()


async def test_a_client_that_does_not_read_holds_its_stream_back_not_the_server(served):
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 65536

    async def handler(_request: Request) -> Stream:
        return Stream(chunks=endless())

    server = await served(handler)
    with socket.create_connection(("127.0.0.1", server.port)) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        before = 0
        while sent == 0 or before < sent < 1024:
            before = sent
            await asyncio.sleep(0.2)
    assert sent * 65536 < 64 * 1024 * 1024


async def test_closing_the_server_ends_streams_cleanly_and_soon(served, session):
    streams = [Chunks() for _ in range(20)]
    waiting = list(streams)

    async def handler(request: Request) -> Stream:
        return await waiting.pop().handler(request)

    server = await served(handler)
    responses = [await session.get(url(server, "/")) for _ in streams]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await server.close(grace=60)
    assert loop.time() - began < 30
    for response in responses:
        assert await response.read() == b""
    assert all(stream.closed.is_set() for stream in streams)


async def test_closing_the_server_lets_a_long_body_finish(served, session):
    closing = asyncio.Event()

    async def handler(_request: Request) -> Stream:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"half"
            await closing.wait()
            yield b" and half"

        return Stream(chunks=chunks(), whole=True)

    server = await served(handler)
    async with session.get(url(server, "/"), headers={"Accept-Encoding": "identity"}) as response:
        close = asyncio.create_task(server.close(grace=30))
        await asyncio.sleep(0.05)
        closing.set()
        assert await response.read() == b"half and half"
    await close


async def test_closing_the_server_lets_a_request_in_progress_finish(served, session):
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def handler(_request: Request) -> Response:
        entered.set()
        await go_on.wait()
        return Response(status=200, body=b"done")

    server = await served(handler)
    asked = asyncio.create_task(session.get(url(server, "/")))
    await entered.wait()
    closing = asyncio.create_task(server.close(grace=5))
    await asyncio.sleep(0.05)
    go_on.set()
    async with await asked as response:
        assert await response.read() == b"done"
    await closing


async def test_closing_aborts_connections_after_the_grace_period(served, session):
    entered = asyncio.Event()

    async def handler(_request: Request) -> Response:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    server = await served(handler)
    asked = asyncio.create_task(session.get(url(server, "/")))
    await entered.wait()
    await server.close(grace=0.1)
    with pytest.raises(aiohttp.ClientError):
        await asked


async def test_closing_the_server_closes_idle_connections_at_once(served):
    server = await served(hello)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"}")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await server.close(grace=60)
    assert await reader.read() == b""
    assert loop.time() - began < 30
    writer.close()
