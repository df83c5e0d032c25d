"""Conversations with a container, against a server that speaks the protocol as the API server does."""

import pytest

from podwire.client import Completed, SessionError, Stderr, Stdout
from podwire.client.api import Api
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.k8sapi.server_side import Request, Socket, Upgrade
from podwire.protocols.streaming import channels, outcome, portforward
from podwire.protocols.streaming.channels import V4, V5, Channel
from podwire.transports import http_client
from podwire.transports.http_server import serve


@pytest.fixture
async def speak():
    """`await speak(run, protocols)` is the Api of a server that answers every upgrade with `run(socket, request)`."""
    opened = []

    async def start(run, protocols=(V5, V4)) -> Api:
        async def handler(request: Request):
            async def talk(socket: Socket) -> None:
                await run(socket, request)

            return Upgrade(protocols=protocols, run=talk)

        server = await serve(handler)
        client = http_client.opened(Access(server=f"http://127.0.0.1:{server.port}"))
        opened.append((server, client))
        return Api(await client.__aenter__())

    yield start
    for server, client in opened:
        await client.__aexit__(None, None, None)
        await server.close(0.5)


def exited(code: int) -> bytes:
    return bytes((Channel.ERROR,)) + outcome.encode(outcome.Exited(code))


async def echo(socket: Socket, _request: Request) -> None:
    """Answers input in capitals, and says how much came to stderr."""
    count = 0
    while (message := await socket.receive()) is not None:
        match channels.decode(message, protocol=socket.protocol, channels=5):
            case channels.Data(Channel.STDIN, data):
                count += len(data)
                await socket.send(b"\1" + data.upper())
            case channels.HalfClose(Channel.STDIN):
                break
    await socket.send(b"\2" + str(count).encode())
    await socket.send(exited(3))


async def test_a_command_runs_to_its_end_with_all_of_its_input(speak):
    api = await speak(echo)
    assert await api.run("web", ["cat"], stdin=b"ab" * 100_000) == Completed(3, b"AB" * 100_000, b"200000")


async def test_the_query_has_the_command_and_the_streams(speak):
    asked = []

    async def run(socket: Socket, request: Request) -> None:
        asked.append((request.path, request.query))
        await socket.send(exited(0))

    api = await speak(run)
    assert (await api.run("web", ["ls", "-l", "a b"], "dev", container="c")).exit_code == 0
    async with api.attach("web", stdin=True, tty=True) as session:
        assert [output async for output in session] == []
    [(path, query), (attach_path, attach_query)] = asked
    assert path == "/api/v1/namespaces/dev/pods/web/exec"
    assert query == {"command": ["ls", "-l", "a b"], "container": ["c"], "stdout": ["true"], "stderr": ["true"]}
    assert attach_path == "/api/v1/namespaces/default/pods/web/attach"
    assert attach_query == {"stdin": ["true"], "stdout": ["true"], "tty": ["true"]}


async def test_a_session_is_a_conversation(speak):
    api = await speak(echo)
    async with api.exec("web", ["sh"], stdin=True) as session:
        await session.write(b"hello")
        assert await anext(session) == Stdout(b"HELLO")
        assert session.exit_code is None
        await session.resize(80, 24)
        await session.end_input()
        assert [output async for output in session] == [Stderr(b"5")]
        assert session.exit_code == 3


async def test_a_server_without_a_signal_for_the_end_of_input_is_an_error(speak):
    api = await speak(echo, protocols=(V4,))
    async with api.exec("web", ["sh"], stdin=True) as session:
        with pytest.raises(SessionError, match="does not speak v5"):
            await session.end_input()


@pytest.mark.parametrize(
    ("message", "reported"),
    [
        pytest.param(None, "ended before the outcome", id="hangs up"),
        pytest.param(b"\3" + outcome.encode(outcome.Failed("no such container")), "no such container", id="failed"),
        pytest.param(b"\3[1]", "broke the protocol", id="not a Status"),
    ],
)
async def test_a_command_without_an_outcome_is_an_error(speak, message, reported):
    async def run(socket: Socket, _request: Request) -> None:
        if message is not None:
            await socket.send(message)

    api = await speak(run)
    with pytest.raises(SessionError, match=reported):
        await api.run("web", ["true"])


async def test_a_port_is_a_stream_of_bytes(speak):
    async def run(socket: Socket, request: Request) -> None:
        side = portforward.ServerSide(socket.protocol, portforward.ports_of(request.query["ports"]))
        for message in side.opening():
            await socket.send(message)
        while (message := await socket.receive()) is not None:
            match side.receive(message):
                case portforward.Bytes(index, data):
                    for part in side.data(index, data.upper()):
                        await socket.send(part)
                case portforward.Ended():
                    return

    api = await speak(run)
    async with api.port_forward("web", 8080) as stream:
        await stream.write(b"hello")
        assert await stream.read(2) == b"HE"
        assert await stream.read() == b"LLO"
        await stream.end_input()
        assert await stream.read() == b""


async def test_a_port_that_cannot_be_reached_is_an_error(speak):
    async def run(socket: Socket, _request: Request) -> None:
        side = portforward.ServerSide(socket.protocol, [80])
        for message in (*side.opening(), *side.problem(0, "connection refused")):
            await socket.send(message)
        await socket.receive()

    api = await speak(run)
    async with api.port_forward("web", 80) as stream:
        with pytest.raises(SessionError, match="port 80: connection refused"):
            await stream.read()
