"""Port-forward: clients of SPDY and of channels against ports of this machine, over real sockets."""

import asyncio
import contextlib
import socket

import pytest

from podwire.protocols.streaming import portforward, spdy
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.streaming.port_connection import InputQueue
from podwire.runtime.streaming.portforward import WebSocketForwarder
from podwire.runtime.streaming.portforward_spdy import SpdyForwarder
from podwire.transports.netns_client import connect_port
from podwire.transports.spdy_server import Frames, SpdyLimits

SECONDS = 30.0


@pytest.fixture
async def listening():
    """`await listening(serve)` is the port of a server of this machine; closed after the test."""
    servers, serving = [], set()

    async def start(serve, host="127.0.0.1"):
        async def handle(reader, writer):
            serving.add(asyncio.current_task())
            try:
                await serve(reader, writer)
                writer.close()
                await writer.wait_closed()
            except (OSError, asyncio.CancelledError):
                writer.transport.abort()

        servers.append(await asyncio.start_server(handle, host, 0))
        return servers[-1].sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()
    for item in serving:
        item.cancel()
    await asyncio.gather(*serving)


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


class Wire:
    """Bytes between two tasks, with as much under way as a socket has."""

    def __init__(self) -> None:
        self._to_server: asyncio.Queue[bytes] = asyncio.Queue(4)
        self._to_client: asyncio.Queue[bytes] = asyncio.Queue(4)
        self.closed = asyncio.Event()

    async def read(self, _limit: int) -> bytes:
        return await self._to_server.get()

    async def write(self, data: bytes) -> None:
        await self._to_client.put(data)

    async def close(self) -> None:
        self.closed.set()
        with contextlib.suppress(asyncio.QueueFull):
            self._to_client.put_nowait(b"")

    async def say(self, *frames: bytes) -> None:
        await self._to_server.put(b"".join(frames))

    async def hear(self) -> bytes:
        return await self._to_client.get()


class Client:
    """The data received on each stream, and which streams have ended."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.spdy = spdy.Connection()
        self.data: dict[int, bytes] = {}
        self.ended: list[int] = []
        self.reset: list[int] = []
        self.gone = False
        self.heard = asyncio.Condition()

    async def listen(self) -> None:
        while data := await self.wire.hear():
            for event in self.spdy.feed(data):
                match event:
                    case spdy.Data(stream, content, end):
                        self.data[stream] = self.data.get(stream, b"") + content
                        self.ended += [stream] * end
                    case spdy.Reset(stream):
                        self.reset.append(stream)
                    case spdy.GoAway():
                        self.gone = True
            async with self.heard:
                self.heard.notify_all()

    async def until(self, condition) -> None:
        async with asyncio.timeout(SECONDS), self.heard:
            await self.heard.wait_for(condition)

    async def open(self, stream: int, kind: str, port: object, request: str = "0") -> None:
        await self.wire.say(self.spdy.open(stream, {"streamType": kind, "port": str(port), "requestID": request}))

    async def say(self, stream: int, data: bytes, *, end: bool = False) -> None:
        for start in range(0, len(data) or 1, 50_000):
            await self.wire.say(*spdy.data(stream, data[start : start + 50_000]))
        if end:
            await self.wire.say(*spdy.data(stream, b"", end=True))

    async def go(self) -> None:
        await self.wire.say(b"")


@pytest.fixture
def limits():
    return RuntimeLimits()


@pytest.fixture
async def client(limits):
    """At a forwarding that runs; it must end when the client goes."""

    async def connect(port):
        return await connect_port("", port)

    made = Client(Wire())
    running = asyncio.create_task(SpdyForwarder(Frames(made.wire), "pod-1", connect, limits).run())
    hearing = asyncio.create_task(made.listen())
    yield made
    async with asyncio.timeout(SECONDS):
        await made.go()
        await made.go()
        await running
        await hearing
    assert made.gone
    assert made.wire.closed.is_set()


async def test_several_connections_at_once_with_much_in_both_directions(client, listening):
    port, content = await listening(echo), bytes(range(256)) * 8000
    for number in (0, 1, 2):
        await client.open(4 * number + 1, "error", port, str(number))
        await client.open(4 * number + 3, "data", port, str(number))
    async with asyncio.TaskGroup() as group:
        for number in (0, 1, 2):
            group.create_task(client.say(4 * number + 3, content + bytes([number]), end=True))
    await client.until(lambda: len(client.ended) == 6)
    assert [client.data[4 * number + 3] == content + bytes([number]) for number in (0, 1, 2)] == [True] * 3
    assert [client.data[4 * number + 1] for number in (0, 1, 2)] == [b""] * 3


async def test_the_clients_end_is_the_ports_and_the_port_still_answers(client, listening):
    async def count(reader, writer):
        writer.write(b"%d bytes" % len(await reader.read()))

    port = await listening(count)
    await client.open(1, "data", port)
    await client.open(3, "error", port)
    await client.say(1, b"four", end=True)
    await client.until(lambda: client.ended == [1, 3])
    assert client.data == {1: b"4 bytes", 3: b""}


async def test_a_port_that_has_said_all_still_hears_what_comes(client, listening):
    heard = asyncio.get_running_loop().create_future()

    async def first_speak(reader, writer):
        writer.write(b"hello")
        writer.write_eof()
        heard.set_result(await reader.read())

    port = await listening(first_speak)
    await client.open(1, "error", port)
    await client.open(3, "data", port)
    await client.until(lambda: client.ended == [3, 1])
    await client.say(3, b"and goodbye", end=True)
    assert await heard == b"and goodbye"


async def test_a_refused_port_is_reported_and_the_session_goes_on(client, listening):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    port = await listening(echo)
    await client.open(1, "error", closed, "a")
    await client.open(3, "data", closed, "a")
    await client.until(lambda: len(client.ended) == 2)
    output = client.data[1].decode()
    assert output.startswith(f"error forwarding port {closed} to pod pod-1, uid : ")
    assert f"dial tcp4 127.0.0.1:{closed}: connect: connection refused" in output
    await client.open(5, "error", port, "b")
    await client.open(7, "data", port, "b")
    await client.say(7, b"hello", end=True)
    await client.until(lambda: 7 in client.ended)
    assert client.data[7] == b"hello"


async def test_the_other_loopback_is_tried_second(client, listening):
    port = await listening(echo, host="::1")
    await client.open(1, "error", port)
    await client.open(3, "data", port)
    await client.say(3, b"six", end=True)
    await client.until(lambda: 3 in client.ended)
    assert client.data[3] == b"six"


async def test_a_client_that_gives_up_closes_the_connection(client, listening):
    closed = asyncio.Event()

    async def wait(reader, _writer):
        await reader.read()
        closed.set()

    port = await listening(wait)
    await client.open(1, "error", port)
    await client.open(3, "data", port)
    await client.say(3, b"hm")
    await client.wire.say(spdy.reset(3, spdy.Why.CANCEL))
    await closed.wait()


async def test_a_port_that_never_reads_does_not_outlive_its_client(listening):
    async def stare(_reader, writer):
        writer.transport.pause_reading()
        await asyncio.get_running_loop().create_future()

    async def connect(number):
        return await connect_port("", number)

    port, client = await listening(stare), Client(Wire())
    frames = Frames(client.wire, SpdyLimits(close_seconds=0.1))
    running = asyncio.create_task(SpdyForwarder(frames, "pod-1", connect).run())
    hearing = asyncio.create_task(client.listen())
    await client.open(1, "error", port)
    await client.open(3, "data", port)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.say(3, bytes(50_000_000))
    running.cancel()  # as the server does when a client vanishes
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await hearing
    assert client.wire.closed.is_set()


@pytest.mark.parametrize(
    ("kind", "port"),
    [("data", ""), ("data", "0"), ("data", "65536"), ("data", "-1"), ("data", "٣"), ("stdin", "80"), ("", "80")],
)
async def test_streams_that_make_no_sense_are_refused(client, kind, port):
    await client.open(1, kind, port)
    await client.until(lambda: client.reset == [1])


async def test_the_streams_of_a_pair_must_agree(client, listening):
    port = await listening(echo)
    await client.open(1, "data", port)
    await client.open(3, "data", port)
    await client.open(5, "error", port + 1)
    await client.until(lambda: client.reset == [3, 5])


@pytest.mark.parametrize("limits", [RuntimeLimits(stream_pair=0.01)])
async def test_waiting_for_the_second_stream_times_out(client):
    await client.open(1, "error", 80)
    await client.until(lambda: client.ended == [1])
    assert b"timed out" in client.data[1]


async def test_older_clients_give_no_request_id(client, listening):
    port = await listening(echo)
    for stream, kind in ((1, "error"), (3, "data")):
        await client.wire.say(client.spdy.open(stream, {"streamType": kind, "port": str(port)}))
    await client.say(3, b"hello", end=True)
    await client.until(lambda: 3 in client.ended)
    assert client.data[3] == b"hello"


async def test_abandoning_a_queue_wakes_its_writers():
    queue = InputQueue()
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(fill(queue))
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.abandon()


async def fill(queue):
    for _ in range(1000):
        await queue.put(b"piece")


class Socket:
    """A WebSocket whose other end is the test's."""

    protocol = "v5.channel.k8s.io"

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sent: list[bytes] = []

    async def receive(self):
        return await self.messages.get()

    async def send(self, data):
        self.sent.append(data)

    async def close(self, code=1000): ...


async def test_in_channels_each_port_has_its_own_two(listening):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    ports = (await listening(echo), closed)
    near, far = Socket(), portforward.ClientSide(Socket.protocol, ports)

    async def connect(port):
        return await connect_port("", port)

    for message in (*far.data(0, b"hello"), far.ended(0)):
        near.messages.put_nowait(message)
    await WebSocketForwarder(near, ports, "pod-1", connect).run()
    said = [each for message in near.sent if (each := far.receive(message))]
    assert b"".join(item.data for item in said if isinstance(item, portforward.Bytes)) == b"hello"
    [problem] = [item for item in said if isinstance(item, portforward.Problem)]
    assert problem.index == 1
    assert "connection refused" in problem.text


async def test_in_channels_the_connections_go_with_the_client(listening):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(reader, _writer):
        begun.set()
        await reader.read()
        ended.set()

    async def connect(number):
        return await connect_port("", number)

    port, near = await listening(wait), Socket()
    running = asyncio.create_task(WebSocketForwarder(near, (port,), "pod-1", connect).run())
    await begun.wait()
    near.messages.put_nowait(None)
    await running
    await ended.wait()
