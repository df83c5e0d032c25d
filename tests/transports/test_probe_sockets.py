"""Probes over real sockets on loopback: what is sent, what is read, and how failures sound."""

import asyncio
import contextlib
import socket
import ssl

import grpc
import pytest

from podwire.apiserver import Pki
from podwire.protocols.grpc_status import NotFound, Unavailable, Unimplemented
from podwire.transports import tls
from podwire.transports.probe_sockets import BODY_BYTES, HEALTH_CHECK, ProbeSockets

SOCKETS = ProbeSockets()


class Server:
    """Sends a configured text to every client, and keeps what it received."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.closed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def saying(
        self, *parts: bytes, endless: bytes = b"", greeting: bytes = b"", context: ssl.SSLContext | None = None
    ):
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                writer.write(greeting)
                self.heard.append(await reader.readuntil(b"\r\n\r\n"))
                writer.writelines(parts)
                while endless:
                    writer.write(endless)
                    await writer.drain()
            self.closed.set()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talks.append(asyncio.current_task())
            await talk(reader, writer)

        talks: list[asyncio.Task[None] | None] = []
        server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=context)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await server.wait_closed()
            await asyncio.gather(*(talk for talk in talks if talk is not None))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def closed_port() -> int:
    """A port on which nobody listens: bound, so that nobody else takes it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def ok(body: bytes = b"fine", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


async def test_a_get_carries_the_headers_given_and_no_others(server):
    async with server.saying(ok()) as port:
        reply = await SOCKETS.http(
            f"http://127.0.0.1:{port}/a%20b?c=d", [("Host", "a.example"), ("X-Y", "1"), ("X-Y", "2")]
        )
    assert (reply.status, reply.body) == (200, b"fine")
    lines = server.heard[0].decode().split("\r\n")
    assert lines[0] == "GET /a%20b?c=d HTTP/1.1"
    assert sorted(lines[1:-2]) == ["Connection: close", "Host: a.example", "X-Y: 1", "X-Y: 2"]


async def test_a_redirect_is_an_answer(server):
    async with server.saying(
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    ) as port:
        reply = await SOCKETS.http(f"http://127.0.0.1:{port}/", [])
    assert (reply.status, reply.headers["location"]) == (302, "http://169.254.169.254/")
    assert len(server.heard) == 1


async def test_each_question_is_asked_on_a_connection_of_its_own_and_no_cookie_is_kept(server):
    async with server.saying(ok(b"", b"Set-Cookie: a=b")) as port:
        for _ in range(2):
            await SOCKETS.http(f"http://127.0.0.1:{port}/", [])
    assert len(server.heard) == 2
    assert b"a=b" not in server.heard[1]


async def test_an_endless_body_is_read_up_to_the_limit(server):
    async with server.saying(b"HTTP/1.1 200 OK\r\n\r\n", endless=b"x" * 4096) as port:
        reply = await SOCKETS.http(f"http://127.0.0.1:{port}/", [])
        assert reply.body == b"x" * BODY_BYTES
        await server.closed.wait()


async def test_packed_bodies_stay_packed(server):
    async with server.saying(ok(b"no gzip", b"Content-Encoding: gzip")) as port:
        assert (await SOCKETS.http(f"http://127.0.0.1:{port}/", [])).body == b"no gzip"


async def test_certificates_are_not_verified(server, tmp_path):
    pki = Pki.open(tmp_path, names=["elsewhere"], ips=[])
    context = tls.server_context(certificate=pki.serving_certificate, key=pki.serving_key)
    async with server.saying(ok(), context=context) as port:
        assert (await SOCKETS.http(f"https://127.0.0.1:{port}/", [])).status == 200


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param(b"", "EOF", id="nothing"),
        pytest.param(b"hello\r\n\r\n", "malformed HTTP response", id="no HTTP"),
    ],
)
async def test_no_answer_has_the_kubelets_text(server, said, words):
    async with server.saying(said) as port:
        with pytest.raises(OSError, match=words):
            await SOCKETS.http(f"http://127.0.0.1:{port}/", [])


async def test_a_refused_connection_has_the_kubelets_text(closed_port):
    words = f"dial tcp 127.0.0.1:{closed_port}: connect: connection refused"
    with pytest.raises(OSError) as raised:
        await SOCKETS.http(f"http://127.0.0.1:{closed_port}/", [])
    assert str(raised.value) == words
    with pytest.raises(OSError) as raised:
        await SOCKETS.tcp("127.0.0.1", closed_port)
    assert str(raised.value) == words


async def test_an_unknown_host_has_the_kubelets_text():
    with pytest.raises(OSError, match=r"^dial tcp no\.\.body:80: lookup: no such host$"):
        await SOCKETS.tcp("no..body", 80)
    for host in ("no..body", "[fd00", "[xy]"):
        with pytest.raises(OSError):
            await SOCKETS.http(f"http://{host}:80/", [])


async def test_plain_http_instead_of_tls_has_the_kubelets_text(server):
    async with server.saying(greeting=ok()) as port:
        with pytest.raises(OSError, match=r"^tls: "):
            await SOCKETS.http(f"https://127.0.0.1:{port}/", [])


@pytest.mark.parametrize(
    "header", [("X", "a\r\nY: b"), ("X\r\nY", "b"), ("X", "a\0b")], ids=["in a value", "in a name", "a nul"]
)
async def test_no_header_smuggles_another(server, header):
    async with server.saying(ok()) as port:
        with contextlib.suppress(OSError):
            await SOCKETS.http(f"http://127.0.0.1:{port}/", [header])
        await SOCKETS.http(f"http://127.0.0.1:{port}/", [])  # so that the server has met the earlier clients, too
    assert not any(b"\r\nY" in item for item in server.heard)


async def test_a_port_that_listens_can_be_connected_to(server):
    async with server.saying() as port:
        await SOCKETS.tcp("127.0.0.1", port)
        await server.closed.wait()


@contextlib.asynccontextmanager
async def health(answer: bytes | grpc.StatusCode):
    """A gRPC server whose only method is Check; it yields its port and what it was sent."""
    heard: list[bytes] = []

    async def check(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        heard.append(request)
        if isinstance(answer, grpc.StatusCode):
            await context.abort(answer, "so it is")
        return answer

    server = grpc.aio.server()
    service, name = HEALTH_CHECK[1:].split("/")
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {name: grpc.unary_unary_rpc_method_handler(check)})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port, heard
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        pytest.param(b"\x08\x01", 1, id="serving"),
        pytest.param(b"\x08\x02", 2, id="not serving"),
        pytest.param(b"", 0, id="unknown, which is not sent"),
        pytest.param(b"\x08\x01\x12\x01x", 1, id="with a field of a later version"),
    ],
)
async def test_a_grpc_server_reports_its_health(answer, status):
    async with health(answer) as (port, heard):
        assert await SOCKETS.grpc("127.0.0.1", port, "db") == status
        assert heard == [b"\x0a\x02db"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(grpc.StatusCode.NOT_FOUND, NotFound, id="a service that it does not know"),
        pytest.param(grpc.StatusCode.UNIMPLEMENTED, Unimplemented, id="a server that tells nothing"),
    ],
)
async def test_a_grpc_server_refuses(answer, error):
    async with health(answer) as (port, _):
        with pytest.raises(error, match="so it is"):
            await SOCKETS.grpc("127.0.0.1", port, "")


async def test_a_server_without_grpc_fails_the_probe(closed_port):
    with pytest.raises(Unavailable):
        await SOCKETS.grpc("127.0.0.1", closed_port, "")
