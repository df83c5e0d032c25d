"""Sockets of DNS, with dig as the client."""

import asyncio
import os
import shutil
import signal
import socket
import struct
import subprocess

import dnslib
import pytest

from podwire.transports.dns_sockets import SocketLimits, UpstreamSockets, bind, serving

pytestmark = pytest.mark.skipif(shutil.which("dig") is None, reason="dig is not installed")

ADDRESS = "127.0.0.1"


def answer(data, _address):
    reply = dnslib.DNSRecord.parse(data).reply()
    reply.add_answer(*dnslib.RR.fromZone("a.example 5 A 192.0.2.1"))
    return bytes(reply.pack())


def truncated(data, _address):
    reply = dnslib.DNSRecord.parse(data).reply()
    reply.header.tc = 1
    return bytes(reply.pack())


@pytest.fixture
def listeners():
    bound = bind([ADDRESS], 0)
    yield bound
    bound.close()


async def dig(port, *words):
    """The records that dig shows."""
    command = ("dig", f"@{ADDRESS}", "-p", str(port), "+short", "+tries=1", "+time=5", "a.example", *words)
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode().split()


async def test_queries_are_answered_over_both_protocols(listeners):
    async with serving(listeners, answer, answer):
        assert await dig(listeners.port) == await dig(listeners.port, "+tcp") == ["192.0.2.1"]


async def test_an_answer_may_take_its_time(listeners):
    async def later(data, address):
        await asyncio.sleep(0)
        return answer(data, address)

    async with serving(listeners, later, later):
        assert await dig(listeners.port) == await dig(listeners.port, "+tcp") == ["192.0.2.1"]


async def test_a_client_with_a_truncated_answer_uses_tcp(listeners):
    async with serving(listeners, truncated, answer):
        assert await dig(listeners.port) == ["192.0.2.1"]


async def test_queries_wait_in_the_socket_while_nobody_serves_it(listeners):
    asking = [asyncio.create_task(dig(listeners.port, *words)) for words in ((), ("+tcp",))]
    await asyncio.sleep(0.2)
    async with serving(listeners, answer, answer):
        assert await asyncio.gather(*asking) == [["192.0.2.1"]] * 2


async def test_a_connection_is_closed_after_an_idle_time_or_a_bad_length(listeners):
    async with serving(listeners, answer, answer, SocketLimits(idle=0.2)):
        for sent in (b"", b"\0", b"\xff\xff"):
            reader, writer = await asyncio.open_connection(ADDRESS, listeners.port)
            writer.write(sent)
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()


async def test_several_queries_on_one_connection_are_answered_in_order(listeners):
    async with serving(listeners, answer, answer):
        reader, writer = await asyncio.open_connection(ADDRESS, listeners.port)
        queries = [bytes(dnslib.DNSRecord.question("a.example").pack()) for _ in range(3)]
        writer.write(b"".join(struct.pack("!H", len(query)) + query for query in queries))
        for query in queries:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            assert (await reader.readexactly(length))[:2] == query[:2]
        writer.close()


async def test_connections_of_one_address_are_bounded(listeners):
    async with serving(listeners, answer, answer, SocketLimits(connections_per_address=2)):
        kept = [await asyncio.open_connection(ADDRESS, listeners.port) for _ in range(2)]
        for _, open_writer in kept:
            open_writer.write(b"\0")
            await open_writer.drain()
        reader, writer = await asyncio.open_connection(ADDRESS, listeners.port)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        for _, open_writer in (*kept, (reader, writer)):
            open_writer.close()


async def test_queries_that_wait_are_bounded(listeners):
    never = asyncio.Event()
    begun = []

    async def waits(data, address):
        begun.append(data)
        await never.wait()

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        async with serving(listeners, waits, waits, SocketLimits(waiting=3)):
            for _ in range(10):
                client.sendto(b"x" * 20, (ADDRESS, listeners.port))
            await asyncio.sleep(0.2)
            assert len(begun) == 3


async def test_other_servers_are_asked_from_different_ports_and_forgeries_ignored(listeners):
    ports = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((ADDRESS, 0))
        other.setblocking(False)
        loop = asyncio.get_running_loop()

        def reply():
            data, address = other.recvfrom(4096)
            ports.add(address[1])
            other.sendto(b"forged", address)
            other.sendto(data + b"!", address)

        loop.add_reader(other.fileno(), reply)
        port = other.getsockname()[1]
        for _ in range(8):
            found = await UpstreamSockets().udp(ADDRESS, port, b"query", 5.0, lambda data: data.endswith(b"!"))
            assert found == b"query!"
        loop.remove_reader(other.fileno())
        with pytest.raises(TimeoutError):
            await UpstreamSockets().udp(ADDRESS, port, b"query", 0.05, lambda _: True)
    assert len(ports) > 4


async def test_other_servers_are_asked_over_tcp(listeners):
    async with serving(listeners, answer, answer):
        query = bytes(dnslib.DNSRecord.question("a.example").pack())
        assert (await UpstreamSockets().tcp(ADDRESS, listeners.port, query, 5.0))[:2] == query[:2]
        with pytest.raises(ConnectionError):
            await UpstreamSockets().tcp(ADDRESS, listeners.port, b"x" * 5000, 5.0)


def test_a_port_that_is_in_use_is_reported(listeners):
    with pytest.raises(OSError, match="in use"):
        bind([ADDRESS], listeners.port)


def test_a_process_that_inherits_the_sockets_can_serve_them(listeners):
    def child():
        async def work():
            async with serving(listeners, answer, answer):
                await asyncio.Event().wait()

        asyncio.run(work())

    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                child()
            finally:
                os._exit(0)
        command = ["dig", f"@{ADDRESS}", "-p", str(listeners.port), "+short", "a.example"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert found.stdout == "192.0.2.1\n"
