"""Conversations with a runtime over SPDY: a peer on a real socket that answers with bytes of its own."""

import asyncio
import contextlib

import pytest

from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.channels import Channel, half_close
from podwire.transports.http_websocket_client import HandshakeRefused
from podwire.transports.spdy_client import dial

SECONDS = 20.0
CHANNELS = [Channel.ERROR, Channel.STDIN, Channel.STDOUT]
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n"
PING = bytes.fromhex("80030006 00 000004 00000002")


class Peer:
    """Answers a handshake, and then as a test says."""

    def __init__(self) -> None:
        self.answer = SWITCHING
        self.head = b""
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self._frames = spdy.Connection()
        self._events: list[spdy.Event] = []
        self.opened: list[dict[str, str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = await reader.readuntil(b"\r\n\r\n")
        self.reader, self.writer = reader, writer
        writer.write(self.answer)
        if self.answer != SWITCHING:
            writer.close()

    async def event(self) -> spdy.Event:
        """The next data or ping that came."""
        while not self._events:
            received = await self.reader.read(1000)
            assert received, "the client has left"
            found = list(self._frames.feed(received))
            self.opened += [item.headers for item in found if isinstance(item, spdy.Opened)]
            self._events += [item for item in found if not isinstance(item, spdy.Opened)]
        return self._events.pop(0)


@pytest.fixture
async def peer():
    made = Peer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/exec/token?a=b"
    async with asyncio.timeout(SECONDS):
        yield made
    server.close()
    if made.writer is not None:
        made.writer.close()
        with contextlib.suppress(OSError):
            await made.writer.wait_closed()


async def test_messages_go_both_ways_and_an_input_has_an_end(peer):
    far = await dial(peer.url, CHANNELS, seconds=SECONDS)
    assert peer.head.startswith(b"POST /exec/token?a=b HTTP/1.1\r\n")
    assert b"\r\nUpgrade: SPDY/3.1\r\n" in peer.head
    assert b"\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in peer.head
    await far.send(bytes((Channel.STDIN,)) + b"typed")
    await far.send(bytes((Channel.RESIZE,)) + b"nobody asked for a terminal")
    await far.send(half_close(Channel.STDIN))
    assert await peer.event() == spdy.Data(3, b"typed", end=False)
    assert await peer.event() == spdy.Data(3, b"", end=True)
    assert peer.opened == [{"streamtype": channel.name.lower()} for channel in CHANNELS]
    peer.writer.write(b"".join([*spdy.data(5, b"said"), PING, *spdy.data(99, b"unknown"), *spdy.data(1, b"{}")]))
    assert await far.receive() == bytes((Channel.STDOUT,)) + b"said"
    assert await peer.event() == spdy.Ping(PING)
    assert await far.receive() == bytes((Channel.ERROR,)) + b"{}"
    peer.writer.close()
    assert await far.receive() is None
    assert far.ended_well
    await far.close()


@pytest.mark.parametrize("last", [b"", bytes.fromhex("8002000100000000")], ids=["silence", "rubbish"])
async def test_a_peer_that_breaks_off_has_not_ended_well(peer, last):
    far = await dial(peer.url, CHANNELS, seconds=SECONDS)
    peer.writer.write(b"".join(spdy.data(5, b"said")))
    assert await far.receive() == bytes((Channel.STDOUT,)) + b"said"
    peer.writer.write(last)
    if not last:
        peer.writer.close()
    assert await far.receive() is None
    assert not far.ended_well
    await far.close()


async def test_a_rejection_keeps_its_body(peer):
    peer.answer = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/x\r\nContent-Length: 4\r\n\r\ngone"
    with pytest.raises(HandshakeRefused) as raised:
        await dial(peer.url, CHANNELS, seconds=SECONDS)
    assert (raised.value.status, raised.value.content_type, raised.value.body) == (404, "text/x", b"gone")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 x\r\n\r\n"])
async def test_a_peer_that_does_not_speak_http_fails(peer, answer):
    peer.answer = answer
    with pytest.raises(ConnectionResetError):
        await dial(peer.url, CHANNELS, seconds=SECONDS)
