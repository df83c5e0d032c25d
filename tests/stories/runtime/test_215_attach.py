"""Clients at the streams of a container itself: several at once, with a terminal, and with input that ends it."""

import asyncio
import contextlib
import socket

import aiohttp
import pytest

from podwire.linux.proc.namespaces import visit
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.streaming.client_side import ClientSide, Stderr, Stdout
from podwire.protocols.streaming.outcome import Exited
from podwire.protocols.streaming.terminal import Size

V5 = "v5.channel.k8s.io"


class Client:
    """At one container."""

    def __init__(self, websocket):
        self.websocket = websocket
        self.side = ClientSide(V5)
        self.stdout, self.stderr, self.outcome = b"", b"", None

    async def say(self, data):
        for message in self.side.stdin(data):
            await self.websocket.send_bytes(message)

    async def end_input(self):
        await self.websocket.send_bytes(self.side.stdin_ended())

    async def hear(self, until=None):
        """Take what comes until the end, or until some output."""
        async with asyncio.timeout(30):
            while until is None or until not in self.stdout + self.stderr:
                message = await self.websocket.receive()
                if message.type is not aiohttp.WSMsgType.BINARY:
                    return
                match self.side.receive(message.data):
                    case Stdout(data):
                        self.stdout += data
                    case Stderr(data):
                        self.stderr += data
                    case None:
                        pass
                    case outcome:
                        self.outcome = outcome


@pytest.fixture
async def attach(cri, shared):
    """`attach(container, stdin=True, …)` is a client; the runtime's streams are in its own network."""

    def inside(address):
        with visit(f"/proc/{shared.space.pid}/ns/net"):
            return socket.socket(address[0], address[1], address[2])

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=inside)) as session:

        @contextlib.asynccontextmanager
        async def attached(container, **streams):
            answer = await cri("Attach", container_id=container, **streams)
            async with session.ws_connect(answer.url, protocols=[V5]) as websocket:
                client = Client(websocket)
                first = await websocket.receive()  # the greeting: nothing is missed from now on
                assert client.side.receive(first.data) is None
                yield client

        yield attached


ECHO = 'while read -r line; do echo "$line"; echo "$line" >&2; [ "$line" = end ] && exit 7; done'


async def test_attached_clients_share_output_and_input(cri, attach):
    container = await cri.start(await cri.run(), ECHO, stdin=True)
    both = {"stdin": True, "stdout": True, "stderr": True}
    async with attach(container, **both) as one, attach(container, **both) as two:
        await one.say(b"from one\n")
        await two.hear(until=b"from one")
        await two.say(b"end\n")
        await asyncio.gather(one.hear(), two.hear())
    for item in (one.stdout, one.stderr, two.stdout, two.stderr):
        assert item == b"from one\nend\n"
    assert (one.outcome, two.outcome) == (Exited(0), Exited(0))
    assert (await cri.ended(container)).exit_code == 7


async def test_a_client_that_goes_leaves_the_container_and_its_input_open(cri, attach):
    container = await cri.start(await cri.run(), ECHO, stdin=True)
    async with attach(container, stdin=True, stdout=True) as one:
        await one.say(b"here\n")
        await one.hear(until=b"here")
        await one.end_input()
    async with attach(container, stdin=True, stdout=True) as two:
        await two.say(b"end\n")
        await two.hear()
    assert (await cri.ended(container)).exit_code == 7


async def test_input_that_is_given_once_ends_with_its_client(cri, attach):
    container = await cri.start(await cri.run(), "cat; exit 5", stdin=True, stdin_once=True)
    async with attach(container, stdin=True, stdout=True) as one:
        await one.say(b"only once")
        await one.end_input()
        await one.hear()
    assert one.stdout == b"only once"
    assert (await cri.ended(container)).exit_code == 5


async def test_a_terminal_has_the_clients_size(cri, attach):
    script = "until [ \"$(stty size)\" = '45 123' ]; do sleep 0.05; done; echo sized; read x; exit 3"
    container = await cri.start(await cri.run(), script, stdin=True, tty=True)
    async with attach(container, stdin=True, stdout=True, tty=True) as one:
        await one.websocket.send_bytes(one.side.resize(Size(123, 45)))
        await one.hear(until=b"sized")
        await one.say(b"\n")
        await one.hear()
    assert (await cri.ended(container)).exit_code == 3


@pytest.mark.parametrize(
    ("streams", "why"),
    [
        pytest.param({}, "one of stdin, stdout or stderr", id="nothing"),
        pytest.param({"tty": True, "stdout": True}, "no terminal", id="a terminal that there is not"),
        pytest.param({"stdin": True, "stdout": True}, "without stdin", id="input that there is not"),
    ],
)
async def test_attach_is_refused_for_streams_that_do_not_exist(cri, streams, why):
    container = await cri.start(await cri.run())
    error = await cri.refused("Attach", container_id=container, **streams)
    assert error.code == 3
    assert why in str(error)


async def test_attach_to_a_stopped_container_is_refused(cri):
    container = await cri.create(await cri.run(), cri.container_config())
    assert (await cri.refused("Attach", pb.AttachRequest(container_id=container, stdout=True))).code == 9
