"""The runtime's streaming server over SPDY, as stock kubelets and API servers use it."""

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

import pytest

from podwire.linux.proc.namespaces import visit
from podwire.protocols.streaming import outcome, spdy
from podwire.protocols.streaming.channels import Channel, half_close
from podwire.transports.http_upgrade_client import FarBytes
from podwire.transports.http_websocket_client import HandshakeRefused
from podwire.transports.spdy_client import FarStreams

SECONDS = 60.0
V4, PORTS = "v4.channel.k8s.io", "portforward.k8s.io"
ALL = (Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.STDERR)


@pytest.fixture
async def pod(cri):
    return await cri.run()


@pytest.fixture
def dial(shared):
    """`async with dial(url, version)` is a connection that speaks SPDY, from the host that the runtime is on."""

    @contextlib.asynccontextmanager
    async def dialled(url, version):
        place = urlsplit(url)
        with visit(f"/proc/{shared.space.pid}/ns/net"):
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        await asyncio.get_running_loop().sock_connect(made, (place.hostname, place.port))
        far = FarBytes(*await asyncio.open_connection(sock=made))
        try:
            head = [f"POST {place.path} HTTP/1.1", f"Host: {place.netloc}", "Content-Length: 0"]
            head += ["Connection: Upgrade", "Upgrade: SPDY/3.1", f"X-Stream-Protocol-Version: {version}"]
            await far.handshake(head)
            assert far.version == version
            yield far
        finally:
            await far.close()

    return dialled


async def heard(far) -> tuple[dict[int, bytes], outcome.Outcome | None]:
    """Everything to the end: by channel, and how it ended."""
    said: dict[int, bytes] = {}
    async with asyncio.timeout(SECONDS):
        while (message := await far.receive()) is not None:
            said[message[0]] = said.get(message[0], b"") + message[1:]
    return said, outcome.OutcomeReader().feed(said.get(Channel.ERROR, b""))


async def test_a_command(cri, pod, dial):
    container = await cri.start(pod)
    command = ["sh", "-c", "cat; echo err >&2; exit 7"]
    offered = await cri("Exec", container_id=container, cmd=command, stdin=True, stdout=True, stderr=True)
    async with dial(offered.url, V4) as wire:
        far = FarStreams(wire)
        await far.open(ALL)
        await far.send(bytes((Channel.STDIN,)) + b"input")
        await far.send(half_close(Channel.STDIN))
        said, ended = await heard(far)
    assert (said[Channel.STDOUT], said[Channel.STDERR], ended) == (b"input", b"err\n", outcome.Exited(7))


async def test_a_terminal(cri, pod, dial):
    container = await cri.start(pod)
    command = ["sh", "-c", "read x; stty size"]
    offered = await cri("Exec", container_id=container, cmd=command, stdin=True, stdout=True, tty=True)
    async with dial(offered.url, V4) as wire:
        far = FarStreams(wire)
        await far.open((Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.RESIZE))
        await far.send(bytes((Channel.RESIZE,)) + b'{"Width":77,"Height":33}')
        await far.send(bytes((Channel.STDIN,)) + b"go\n")
        said, ended = await heard(far)
    assert b"33 77" in said[Channel.STDOUT]
    assert ended == outcome.Exited(0)


async def test_attaching(cri, pod, dial):
    container = await cri.start(pod, "read x; echo heard $x", stdin=True)
    offered = await cri("Attach", container_id=container, stdin=True, stdout=True, stderr=True)
    async with dial(offered.url, V4) as wire:
        far = FarStreams(wire)
        await far.open(ALL)
        await far.send(bytes((Channel.STDIN,)) + b"hello\n")
        said, ended = await heard(far)
    assert (said[Channel.STDOUT], ended) == (b"heard hello\n", outcome.Exited(0))


async def test_a_version_that_is_not_spoken(cri, pod, dial):
    offered = await cri("PortForward", pod_sandbox_id=pod.id)
    with pytest.raises(HandshakeRefused) as raised:
        async with dial(offered.url, V4):
            pass
    assert raised.value.status == 403
    assert b"server accepts [portforward.k8s.io]" in raised.value.body


class Fetching:
    """Pages of several ports over one connection, one after the other."""

    def __init__(self, far: FarBytes) -> None:
        self._far = far
        self._client = spdy.Connection()
        self._next = 1

    async def page(self, port: int) -> tuple[bytes, bytes]:
        """The answer of a port, and the error if there was one."""
        error, data, self._next = self._next, self._next + 2, self._next + 4
        for stream, kind in ((error, "error"), (data, "data")):
            headers = {"streamType": kind, "port": str(port), "requestID": str(error)}
            await self._far.write(self._client.open(stream, headers))
        await self._far.write(b"".join(spdy.data(data, b"GET / HTTP/1.0\r\n\r\n")))
        said, ended = {error: b"", data: b""}, set()
        async with asyncio.timeout(SECONDS):
            while ended != {error, data}:
                received = await self._far.read(65536)
                assert received, "the runtime has left"
                for event in self._client.feed(received):
                    if isinstance(event, spdy.Data):
                        said[event.stream] += event.data
                        ended |= {event.stream} if event.end else set()
        return said[data], said[error]


SERVE = "mkdir /dev/shm/www; echo hello > /dev/shm/www/index.html; exec httpd -f -p 127.0.0.1:8080 -h /dev/shm/www"
LISTENS = "until wget -q -O - 127.0.0.1:8080; do sleep 0.05; done"


async def test_ports_of_a_pod_are_reached_in_its_own_network(cri, pod, dial):
    container = await cri.start(pod, SERVE)
    assert "hello" in await cri.said(container, LISTENS)
    offered = await cri("PortForward", pod_sandbox_id=pod.id)
    async with dial(offered.url, PORTS) as far:
        fetching = Fetching(far)
        page, wrong = await fetching.page(8080)
        assert page.endswith(b"hello\n")
        assert wrong == b""
        page, wrong = await fetching.page(8081)
        assert page == b""
        assert b"dial tcp4 127.0.0.1:8081: connect: connection refused" in wrong
        assert (await fetching.page(8080))[0].endswith(b"hello\n")


async def test_a_pod_that_stops_takes_its_clients_along(cri, pod, dial):
    offered = await cri("PortForward", pod_sandbox_id=pod.id)
    async with dial(offered.url, PORTS) as far:
        await cri("StopPodSandbox", pod_sandbox_id=pod.id)
        last = b""
        async with asyncio.timeout(SECONDS):
            while data := await far.read(65536):
                last += data
    assert list(spdy.Connection().feed(last)) == [spdy.GoAway()]
    assert (await cri.refused("PortForward", pod_sandbox_id=pod.id)).code == 9


async def test_ports_that_are_none(cri, pod):
    assert (await cri.refused("PortForward", pod_sandbox_id=pod.id, port=[80, 70000])).code == 3
    assert (await cri.refused("PortForward", pod_sandbox_id="nobody")).code == 5
    assert (await cri("PortForward", pod_sandbox_id=pod.id, port=[80])).url


RUBBISH = {
    "another version": bytes.fromhex("8002000100000000"),
    "a huge frame": bytes.fromhex("8003000100ffffff"),
    "an even stream": spdy.Connection().open(2, {}),
    "headers that are none": bytes.fromhex("80030001 00 00000e 00000001 00000000 0000 ffffffff"),
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH.keys())
async def test_a_protocol_violation_ends_the_connection_cleanly(cri, pod, dial, rubbish):
    offered = await cri("PortForward", pod_sandbox_id=pod.id)
    async with dial(offered.url, PORTS) as far:
        await far.write(rubbish)
        async with asyncio.timeout(SECONDS):
            assert await far.read(65536) == spdy.go_away(0, blame=True)
