"""The server's end of SPDY, and exec on top of it: against the frames of a client, over a wire in memory."""

import asyncio

import pytest

from podwire.protocols.streaming import outcome, spdy
from podwire.protocols.streaming.channels import Channel, half_close
from podwire.transports.spdy_server import V2, V3, V4, Frames, SpdyLimits, SpdySocket

PING = bytes.fromhex("80030006 00 000004 00000001")


class Wire:
    """A stream of bytes whose other end is the test's."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent = b""
        self.closed = False
        self.client = spdy.Connection()

    async def read(self, _limit: int) -> bytes:
        return b"" if self.closed else await self.incoming.get()

    async def write(self, data: bytes) -> None:
        if self.closed:
            raise ConnectionResetError("closed")
        self.sent += data

    async def close(self) -> None:
        self.closed = True

    def say(self, *frames: bytes) -> None:
        self.incoming.put_nowait(b"".join(frames))

    def hang_up(self) -> None:
        self.incoming.put_nowait(b"")

    def heard(self) -> list[spdy.Event]:
        """All that the server has said since the last time."""
        sent, self.sent = self.sent, b""
        return list(self.client.feed(sent))


@pytest.fixture
def wire():
    return Wire()


def opened(wire: Wire, *kinds: str) -> list[bytes]:
    return [wire.client.open(2 * number + 1, {"streamType": kind}) for number, kind in enumerate(kinds)]


async def test_events_come_as_the_client_makes_them_and_pings_are_answered(wire):
    frames = Frames(wire)
    wire.say(*opened(wire, "data"), PING, *spdy.data(1, b"hi", end=True), spdy.go_away(0))
    wire.hang_up()
    assert await frames.next() == spdy.Opened(1, {"streamtype": "data"})
    assert await frames.next() == spdy.Data(1, b"hi", end=False)
    assert await frames.next() == spdy.Data(1, b"", end=True)
    assert await frames.next() is None
    assert await frames.next() is None
    assert wire.heard() == [spdy.Ping(PING)]


@pytest.mark.parametrize("numbers", [(2,), (0,), (1, 1), (3, 1)], ids=["even", "nought", "twice", "backwards"])
async def test_streams_with_bad_numbers_end_the_connection(wire, numbers):
    frames = Frames(wire)
    wire.say(*(wire.client.open(number, {}) for number in numbers), *spdy.data(1, b"more"))
    for _ in numbers[1:]:
        assert isinstance(await frames.next(), spdy.Opened)
    assert await frames.next() is None
    wire.hang_up()
    await frames.finish()
    assert wire.sent.endswith(spdy.go_away(max(0, *numbers[:-1], 0), blame=True))
    assert wire.closed


async def test_a_protocol_violation_is_answered_with_goaway(wire):
    frames = Frames(wire)
    wire.say(*opened(wire, "data"), bytes.fromhex("8002000100000000"))
    assert isinstance(await frames.next(), spdy.Opened)
    assert await frames.next() is None
    wire.hang_up()
    await frames.finish()
    assert wire.heard() == [spdy.Data(1, b"", end=True), spdy.GoAway()]


async def test_data_for_a_stream_that_never_was_is_refused_and_for_one_that_was_dropped(wire):
    frames = Frames(wire)
    wire.say(*opened(wire, "data"), *spdy.data(7, b"where?"))
    assert isinstance(await frames.next(), spdy.Opened)
    await frames.refuse(1)
    wire.say(*spdy.data(1, b"late"), spdy.reset(1, spdy.Why.CANCEL))
    assert await frames.next() == spdy.Reset(1)
    assert wire.heard() == [spdy.Reset(1), spdy.Reset(7)]
    await frames.send(1, b"nobody listens")
    assert wire.heard() == []


async def test_only_so_many_streams_are_open_at_once(wire):
    frames = Frames(wire, SpdyLimits(streams=2))
    wire.say(*opened(wire, "a", "b", "c"), spdy.reset(1, spdy.Why.CANCEL), wire.client.open(7, {}))
    found = [await frames.next() for _ in range(4)]
    assert [item.stream for item in found] == [1, 3, 1, 7]
    assert wire.heard() == [spdy.Reset(5)]


async def test_a_conversation_has_a_stream_for_each_channel(wire):
    socket = SpdySocket(Frames(wire), V4)
    wire.say(*opened(wire, "error", "stdin", "stdout", "resize"))
    assert await socket.open([Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.RESIZE])
    wire.say(*spdy.data(3, b"typed", end=True), *spdy.data(7, b"{}"))
    assert await socket.receive() == bytes((Channel.STDIN,)) + b"typed"
    assert await socket.receive() == half_close(Channel.STDIN)
    assert await socket.receive() == bytes((Channel.RESIZE,)) + b"{}"
    await socket.send(bytes((Channel.STDOUT,)))
    await socket.send(bytes((Channel.STDOUT,)) + b"said")
    await socket.send(bytes((Channel.STDERR,)) + b"nobody asked")
    status = outcome.encode(outcome.Exited(7))
    await socket.send(bytes((Channel.ERROR,)) + status)
    wire.hang_up()
    await socket.close()
    data = [item for item in wire.heard() if isinstance(item, spdy.Data)]
    assert data == [
        spdy.Data(5, b"said", end=False),
        spdy.Data(1, status, end=False),
        *(spdy.Data(stream, b"", end=True) for stream in (1, 3, 5, 7)),
    ]


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (outcome.Exited(0), b""),
        (outcome.Exited(7), b"command terminated with non-zero exit code: 7"),
        (outcome.Failed("no such file"), b"Internal error occurred: no such file"),
    ],
)
async def test_older_versions_receive_the_outcome_as_text(wire, ended, text):
    socket = SpdySocket(Frames(wire), V3)
    wire.say(*opened(wire, "error"))
    assert await socket.open([Channel.ERROR])
    await socket.send(bytes((Channel.ERROR,)) + outcome.encode(ended))
    pieces = [item.data for item in wire.heard() if isinstance(item, spdy.Data)]
    assert b"".join(pieces) == text


async def test_the_oldest_version_has_no_sizes(wire):
    socket = SpdySocket(Frames(wire), V2)
    wire.say(*opened(wire, "error", "stdout"))
    assert await socket.open([Channel.ERROR, Channel.STDOUT, Channel.RESIZE])


async def test_a_client_that_opens_too_little_or_goes_is_not_waited_for(wire):
    wire.say(*opened(wire, "error"))
    wire.hang_up()
    assert not await SpdySocket(Frames(wire), V4).open([Channel.ERROR, Channel.STDOUT])
    assert not await SpdySocket(Frames(wire, SpdyLimits(open_seconds=0.01)), V4).open([Channel.ERROR])


async def test_streams_of_no_channel_or_of_one_that_is_there_are_refused(wire):
    socket = SpdySocket(Frames(wire), V4)
    wire.say(*opened(wire, "stdin", "stdin", "coffee", "error"), spdy.reset(1, spdy.Why.CANCEL))
    assert await socket.open([Channel.STDIN, Channel.ERROR])
    assert [item.stream for item in wire.heard() if isinstance(item, spdy.Reset)] == [3, 5]
    assert await socket.receive() == half_close(Channel.STDIN), "a stream that is given up has ended"
