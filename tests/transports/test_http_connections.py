"""Too many connections: unauthenticated ones go first, idle connections go next, busy ones stay."""

import asyncio
import contextlib
import resource
import subprocess
import sys
import textwrap

import pytest

from podwire.protocols.k8sapi.server_side import Request, Response
from podwire.transports.http_connection import HttpLimits
from podwire.transports.http_connections import Connections, network_of
from podwire.transports.http_server import serve
from tests.eventually import eventually_async

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
ASK_AS_ADMIN = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"


class Client:
    """One connection that stays open between requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes = ASK) -> bytes:
        async with asyncio.timeout(20):
            self.writer.write(request)
            return await self.reader.readuntil(b"hello")

    async def is_closed(self, seconds: float = 20.0) -> bool:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                return not await self.reader.read(1)
            return False
        return self.reader.exception() is not None


@pytest.fixture
async def crowd():
    """`server, connect, release = await crowd(limits)`; a request to /slow is answered after `release.set()`."""
    opened, servers = [], []
    release = asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.headers.get("authorization") == "Bearer admin":
            request.trust()
        if request.path == "/slow":
            await release.wait()
        return Response(status=200, body=b"hello")

    async def start(limits: HttpLimits):
        server = await serve(handler, limits=limits)
        servers.append(server)

        async def connect() -> Client:
            opened.append(Client(*await asyncio.open_connection("127.0.0.1", server.port)))
            return opened[-1]

        return server, connect, release

    yield start
    for client in opened:
        client.writer.close()
    for server in servers:
        await server.close(0.1)


async def test_idle_unauthenticated_connections_do_not_lock_others_out(crowd):
    server, connect, _ = await crowd(HttpLimits(connections=8, unauthenticated_per_address=8))
    unauthenticated = [await connect() for _ in range(8)]
    for client in unauthenticated:
        await client.ask()
    assert b"200 OK" in await (await connect()).ask(ASK_AS_ADMIN)
    assert len(server.connections) <= 8


async def test_silent_connections_do_not_lock_others_out(crowd):
    _, connect, _ = await crowd(HttpLimits(connections=8, unauthenticated_per_address=8, head_seconds=3600))
    for _ in range(20):
        await connect()
    assert b"200 OK" in await (await connect()).ask()


async def test_unauthenticated_connections_are_closed_before_trusted_ones_the_least_recent_first(crowd):
    _, connect, _ = await crowd(HttpLimits(connections=12, unauthenticated_per_address=12))
    admin = await connect()
    await admin.ask(ASK_AS_ADMIN)
    others = [await connect() for _ in range(9)]
    for client in others:
        await client.ask(ASK_AS_ADMIN)
    first, second = await connect(), await connect()
    await first.ask()
    await second.ask()
    await first.ask()
    await (await connect()).ask()
    assert await second.is_closed()
    assert b"200 OK" in await first.ask()
    assert b"200 OK" in await admin.ask()


async def test_an_idle_trusted_connection_is_closed_when_all_are_trusted(crowd):
    _, connect, _ = await crowd(HttpLimits(connections=4, unauthenticated_per_address=4))
    clients = [await connect() for _ in range(4)]
    for client in clients:
        await client.ask(ASK_AS_ADMIN)
    await clients[0].ask()
    assert b"200 OK" in await (await connect()).ask(ASK_AS_ADMIN)
    assert await clients[1].is_closed()
    assert b"200 OK" in await clients[0].ask()


async def test_busy_connections_stay_and_the_next_one_waits_for_an_end(crowd):
    _, connect, release = await crowd(HttpLimits(connections=2, unauthenticated_per_address=2))
    busy = [await connect() for _ in range(2)]
    answers = [asyncio.create_task(client.ask(SLOW)) for client in busy]
    await asyncio.sleep(0.05)
    late = asyncio.create_task((await connect()).ask())
    await asyncio.sleep(0.4)
    assert not late.done()
    release.set()
    assert all(b"200 OK" in answer for answer in await asyncio.gather(*answers, late))


async def test_one_address_gets_a_quarter_of_the_connections_while_unauthenticated(crowd):
    server, connect, _ = await crowd(HttpLimits(connections=40))
    clients = [await connect() for _ in range(30)]
    await eventually_async(lambda: server.connections.evicted == 20)
    assert server.connections.unauthenticated == 10
    assert b"200 OK" in await clients[-1].ask()
    assert await clients[0].is_closed()


async def test_trusted_connections_of_one_address_are_not_limited(crowd):
    server, connect, _ = await crowd(HttpLimits(connections=40))
    for _ in range(30):
        await (await connect()).ask(ASK_AS_ADMIN)
    assert (len(server.connections), server.connections.evicted) == (30, 0)


async def test_an_unauthenticated_connection_may_be_idle_for_a_short_time_only(crowd):
    _, connect, _ = await crowd(HttpLimits(unauthenticated_idle_seconds=0.1, idle_seconds=3600))
    visitor, admin = await connect(), await connect()
    await visitor.ask()
    await admin.ask(ASK_AS_ADMIN)
    assert await visitor.is_closed()
    assert not await admin.is_closed(0.3)
    assert b"200 OK" in await admin.ask()


async def test_a_busy_unauthenticated_connection_is_not_closed_for_being_idle(crowd):
    _, connect, release = await crowd(HttpLimits(unauthenticated_idle_seconds=0.05))
    answer = asyncio.create_task((await connect()).ask(SLOW))
    await asyncio.sleep(0.3)
    release.set()
    assert b"200 OK" in await answer


async def test_closed_connections_are_forgotten(crowd):
    server, connect, _ = await crowd(HttpLimits())
    clients = [await connect() for _ in range(5)]
    await clients[0].ask(ASK_AS_ADMIN)
    await clients[1].ask()
    for client in clients:
        client.writer.close()
    await eventually_async(lambda: len(server.connections) == 0)
    assert server.connections._by_network == {}


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_what_counts_as_one_address(address, network):
    assert network_of(address) == network


def test_the_server_raises_its_own_limit_of_open_files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = """
        import resource
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        from podwire.transports.http_server import KEPT_FILES, connection_slots
        print(connection_slots(10**9) + KEPT_FILES)
    """
    printed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=True)
    assert int(printed.stdout) in (hard, 10**9 + 256)


def test_an_unknown_connection_is_removed_without_harm():
    connections = Connections(1, 1.0)
    connections.remove(object())
    assert len(connections) == 0
