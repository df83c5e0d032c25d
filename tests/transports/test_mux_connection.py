"""Two conversations on one socket, with peers that behave and peers that do not."""

import asyncio
import contextlib
import os
import socket

import pytest

from podwire.protocols.grpc_status import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unimplemented,
)
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import call, mux, ttrpc_pb2, wire
from podwire.protocols.ttrpc.sides import Asking, answer
from podwire.transports.mux_connection import (
    AnswerTimeout,
    ConnectionClosed,
    MuxConnection,
    MuxLimits,
    Services,
    connect,
    over_socket,
)

WAIT = 30.0
"""Seconds for what happens at once, on a machine that may be busy."""
RUN = methods.RUN_POD_SANDBOX
POD = pb.RunPodSandboxRequest(pod=pb.PodSandbox(id="p"))


@pytest.fixture(autouse=True)
async def limited():
    """A test that waits for what does not come fails, and says where it waited."""
    async with asyncio.timeout(2 * WAIT):
        yield


def runtime(limits=None, **handlers):
    services = Services(methods.RUNTIME, handlers)
    return MuxConnection(services, asks_on=mux.PLUGIN_SERVICE, answers_on=mux.RUNTIME_SERVICE, limits=limits)


def plugin(**handlers):
    services = Services(methods.PLUGIN, handlers)
    return MuxConnection(services, asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE)


@contextlib.asynccontextmanager
async def joined(one, other):
    """Two connections that speak to each other."""
    near, far = socket.socketpair()
    await over_socket(near, one)
    await over_socket(far, other)
    try:
        yield one, other
    finally:
        await one.close()
        await other.close()


class Peer:
    """Somebody at the other end who says any bytes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.asking = Asking()

    def ask(self, method, request, conversation=mux.PLUGIN_SERVICE, **beside):
        stream, frame = self.asking.request(method.service, method.name, request.SerializeToString(), **beside)
        self.writer.write(mux.pieces(conversation, frame))
        return stream

    async def frame(self):
        """The next frame, with its conversation."""
        frames = wire.Frames()
        while True:
            conversation, length = mux.HEADER.unpack(await self.reader.readexactly(mux.HEADER.size))
            for frame in frames.feed(await self.reader.readexactly(length)):
                return conversation, frame

    async def reply(self):
        """(stream, status code, payload) of the next answer."""
        _, frame = await self.frame()
        response = ttrpc_pb2.Response.FromString(frame.data)
        return frame.stream, response.status.code, response.payload


@contextlib.asynccontextmanager
async def facing(connection):
    near, far = socket.socketpair()
    await over_socket(near, connection)
    reader, writer = await asyncio.open_unix_connection(sock=far)
    try:
        yield Peer(reader, writer)
    finally:
        await connection.close()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def empty(_):
    return pb.RunPodSandboxResponse()


# Calls.


async def test_both_sides_call_and_answer_at_the_same_time():
    async def register(request):
        return pb.Empty()

    async def update(request):
        return pb.UpdateContainersResponse(failed=request.update)

    async def configure(request):
        failed = await other.call(
            methods.UPDATE_CONTAINERS,
            pb.UpdateContainersRequest(update=[pb.ContainerUpdate(container_id=request.config)]),
            within=WAIT,
        )
        return pb.ConfigureResponse(events=len(failed.failed))

    async with joined(runtime(RegisterPlugin=register, UpdateContainers=update), plugin(Configure=configure)) as (
        one,
        other,
    ):
        await other.call(methods.REGISTER_PLUGIN, pb.RegisterPluginRequest(plugin_name="a"), within=WAIT)
        asked = [one.call(methods.CONFIGURE, pb.ConfigureRequest(config=f"{n}"), within=WAIT) for n in range(50)]
        assert [item.events for item in await asyncio.gather(*asked)] == [1] * 50


async def test_responses_match_their_calls_in_any_order():
    gates = [asyncio.Event() for _ in range(3)]

    async def configure(request):
        await gates[int(request.config)].wait()
        return pb.ConfigureResponse(events=int(request.config))

    async with joined(runtime(), plugin(Configure=configure)) as (one, _):
        calls = [
            asyncio.create_task(one.call(methods.CONFIGURE, pb.ConfigureRequest(config=f"{n}"), within=WAIT))
            for n in range(3)
        ]
        for number in (2, 0, 1):
            gates[number].set()
            assert (await calls[number]).events == number


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        pytest.param(NotFound("no such pod"), NotFound, "no such pod", id="an error of the protocol is sent as it is"),
        pytest.param(KeyError("secret"), Internal, "RunPodSandbox failed for a reason", id="any other is a fault"),
        pytest.param(
            TimeoutError("slow disk"), Internal, "RunPodSandbox failed for a reason", id="a time-out of its own"
        ),
    ],
)
async def test_an_exception_of_a_handler_is_answered_and_the_next_call_works(raised, kind, words):
    errors = [raised]

    async def handler(_):
        if errors:
            raise errors.pop()
        return pb.RunPodSandboxResponse()

    async with joined(runtime(), plugin(RunPodSandbox=handler)) as (one, _):
        with pytest.raises(kind, match=words):
            await one.call(RUN, POD, within=WAIT)
        await one.call(RUN, POD, within=WAIT)


async def test_a_time_out_inside_a_handler_is_answered_without_a_deadline():
    async def handler(_):
        raise TimeoutError

    async with facing(plugin(RunPodSandbox=handler)) as peer:
        peer.ask(RUN, POD)
        assert (await peer.reply())[:2] == (1, Internal.code)


async def test_a_handler_that_answers_with_no_message_is_at_fault():
    async def handler(_):
        return None

    async with joined(runtime(), plugin(RunPodSandbox=handler)) as (one, _):
        with pytest.raises(Internal):
            await one.call(RUN, POD, within=WAIT)


async def test_a_handler_that_is_cancelled_from_elsewhere_is_answered_for():
    async def handler(_):
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner

    async with facing(plugin(RunPodSandbox=handler)) as peer:
        peer.ask(RUN, POD)
        assert (await peer.reply())[:2] == (1, 1)


@pytest.mark.parametrize(
    ("service", "method", "words"),
    [
        pytest.param("a.B", "RunPodSandbox", "service a.B", id="a service"),
        pytest.param(methods.PLUGIN_SERVICE, "Nothing", "method Nothing", id="a method"),
        pytest.param(methods.PLUGIN_SERVICE, "StopContainer", "method StopContainer", id="a method without handler"),
        pytest.param("", "", "service ", id="nothing"),
    ],
)
async def test_unknown_services_and_methods_have_the_texts_of_the_go_implementation(service, method, words):
    async with facing(plugin(RunPodSandbox=empty)) as peer:
        _, frame = peer.asking.request(service, method, b"")
        peer.writer.write(mux.pieces(mux.PLUGIN_SERVICE, frame))
        _, reply = await peer.frame()
        status = ttrpc_pb2.Response.FromString(reply.data).status
        assert (status.code, status.message) == (Unimplemented.code, words)


async def test_invalid_payloads_are_rejected_on_either_side():
    async with facing(plugin(RunPodSandbox=empty)) as peer:
        _, frame = peer.asking.request(RUN.service, RUN.name, b"\xff\xff")
        peer.writer.write(mux.pieces(mux.PLUGIN_SERVICE, frame))
        assert (await peer.reply())[:2] == (1, InvalidArgument.code)
    connection = runtime()
    async with facing(connection) as peer:
        asked = asyncio.create_task(connection.call(methods.CONFIGURE, pb.ConfigureRequest(), within=WAIT))
        _, frame = await peer.frame()
        peer.writer.write(mux.pieces(mux.PLUGIN_SERVICE, answer(frame.stream, b"\xff\xff")))
        with pytest.raises(InvalidArgument, match="Configure: the response is not a valid ConfigureResponse"):
            await asked


# Time.


async def test_a_handler_knows_deadline_and_metadata():
    seen = []

    async def handler(_):
        seen.append(call.current())
        return pb.RunPodSandboxResponse()

    async with joined(runtime(), plugin(RunPodSandbox=handler)) as (one, _):
        await one.call(RUN, POD, within=12.5, metadata=[("traceparent", "00-a-b-01"), ("K", "1"), ("k", "2")])
        await one.call(RUN, POD, within=WAIT)
    assert seen[0] == call.Call(12.5, {"traceparent": ("00-a-b-01",), "k": ("1", "2")})
    assert seen[0].traceparent == "00-a-b-01"
    assert (seen[1].metadata, seen[1].traceparent) == ({}, "")


async def test_a_handler_ends_when_its_callers_time_does():
    ended = asyncio.Event()

    async def handler(_):
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with facing(plugin(RunPodSandbox=handler)) as peer:
        peer.ask(RUN, POD, timeout=0.01)
        assert (await peer.reply())[:2] == (1, DeadlineExceeded.code)
        await ended.wait()


async def test_a_call_that_gets_no_answer_ends_in_time_and_the_late_answer_is_dropped():
    connection = runtime()
    async with facing(connection) as peer:
        with pytest.raises(AnswerTimeout, match=r"no answer to RunPodSandbox within 0\.01 s"):
            await connection.call(RUN, POD, within=0.01)
        _, late = await peer.frame()
        asked = asyncio.create_task(connection.call(RUN, POD, within=WAIT))
        _, frame = await peer.frame()
        assert (late.stream, frame.stream) == (1, 3)
        for stream in (1, 3):
            peer.writer.write(mux.pieces(mux.PLUGIN_SERVICE, answer(stream, b"")))
        assert await asked == pb.RunPodSandboxResponse()
        assert connection._waiting == {}


async def test_a_caller_that_is_cancelled_leaves_the_others_alone():
    connection = runtime()
    async with facing(connection) as peer:
        first, second = (asyncio.create_task(connection.call(RUN, POD, within=WAIT)) for _ in range(2))
        streams = [(await peer.frame())[1].stream for _ in range(2)]
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        for stream in streams:
            peer.writer.write(mux.pieces(mux.PLUGIN_SERVICE, answer(stream, b"")))
        await second


# The end.


async def test_pending_calls_fail_with_the_connection_and_its_reason():
    connection = runtime()
    async with facing(connection) as peer:
        waiting = asyncio.create_task(connection.call(RUN, POD, within=WAIT))
        await peer.frame()
        await connection.close("the host stops")
        with pytest.raises(ConnectionClosed, match="the host stops"):
            await waiting
        assert await connection.closed == "the host stops"
        with pytest.raises(ConnectionClosed, match="the host stops"):
            await connection.call(RUN, POD, within=WAIT)


async def test_a_call_without_a_socket_fails():
    connection = runtime()
    assert (connection.peer_pid, connection.peer_uid) == (0, -1)
    with pytest.raises(ConnectionClosed):
        await connection.call(RUN, POD, within=WAIT)
    await connection.close()


async def test_handlers_end_with_the_connection_and_closing_waits_for_them():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(_):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    async with joined(runtime(), plugin(RunPodSandbox=handler)) as (one, other):
        asked = asyncio.create_task(one.call(RUN, POD, within=WAIT))
        await begun.wait()
        await other.close()
        assert ended.is_set()
        with pytest.raises(ConnectionClosed, match="the peer closed the connection"):
            await asked


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(b"", "the peer closed the connection", id="before a word"),
        pytest.param(b"\0\0\0\1", "in the middle of a frame", id="in a header of the mux"),
        pytest.param(b"\0\0\0\1\0\0\0\5ab", "in the middle of a frame", id="in a piece"),
        pytest.param(b"\0\0\0\1\0\0\0\2ab", "in the middle of a frame", id="in a header of ttrpc"),
        pytest.param(b"\0\0\0\1\xff\xff\xff\xff", "a piece of 4294967295 bytes", id="after nonsense"),
        pytest.param(b"GET / HTTP/1.1\r\n", "a piece of 790644820 bytes", id="after another protocol"),
    ],
)
async def test_a_silent_peer_is_closed_with_a_reason(said, why):
    connection = plugin(RunPodSandbox=empty)
    async with facing(connection) as peer:
        peer.writer.write(said)
        peer.writer.write_eof()
        assert why in await connection.closed
        with contextlib.suppress(ConnectionError):
            assert await peer.reader.read() == b""


async def test_a_misbehaving_peer_does_not_disturb_another():
    async with joined(runtime(), plugin(RunPodSandbox=empty)) as (one, _), facing(plugin()) as peer:
        peer.writer.write(b"\xff" * 1000)
        with contextlib.suppress(ConnectionError):
            assert await peer.reader.read() == b""
        await one.call(RUN, POD, within=WAIT)


async def test_pieces_of_other_conversations_and_frames_of_other_kinds_are_passed_over():
    async with facing(plugin(RunPodSandbox=empty)) as peer:
        for number in (0, 3, 0xFFFFFFFF):
            peer.writer.write(mux.HEADER.pack(number, 3) + b"abc")
        peer.writer.write(mux.pieces(mux.PLUGIN_SERVICE, wire.encode(1, 9, b"what")))
        peer.writer.write(mux.pieces(mux.RUNTIME_SERVICE, wire.encode(1, wire.RESPONSE, b"nobody asked")))
        peer.ask(RUN, POD)
        assert await peer.reply() == (1, 0, b"")


async def test_a_frame_may_come_in_any_number_of_pieces():
    async with facing(plugin(RunPodSandbox=empty)) as peer:
        request = pb.RunPodSandboxRequest(pod=pb.PodSandbox(name="x" * 2000))
        _, frame = peer.asking.request(RUN.service, RUN.name, request.SerializeToString())
        for byte in frame:
            peer.writer.write(mux.HEADER.pack(mux.PLUGIN_SERVICE, 1) + bytes([byte]))
        assert await peer.reply() == (1, 0, b"")


# Size.


async def test_the_longest_message_passes_and_a_longer_one_is_rejected_by_its_sender():
    async def create(request):
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(args=[request.container.name]))

    def request(size):
        return pb.CreateContainerRequest(container=pb.Container(name="x" * size))

    async with joined(runtime(), plugin(CreateContainer=create)) as (one, _):
        size = wire.MAX_DATA - 200
        got = await one.call(methods.CREATE_CONTAINER, request(size), within=WAIT)
        assert len(got.adjust.args[0]) == size
        with pytest.raises(ResourceExhausted, match="and a frame holds 4194304"):
            await one.call(methods.CREATE_CONTAINER, request(wire.MAX_DATA), within=WAIT)
        await one.call(methods.CREATE_CONTAINER, request(1), within=WAIT)


async def test_an_answer_that_is_too_long_is_an_error_and_the_next_call_works():
    async def create(request):
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(args=["x" * int(request.container.name)]))

    async with joined(runtime(), plugin(CreateContainer=create)) as (one, _):
        long, short = (pb.CreateContainerRequest(container=pb.Container(name=f"{size}")) for size in (wire.MAX_DATA, 9))
        with pytest.raises(ResourceExhausted):
            await one.call(methods.CREATE_CONTAINER, long, within=WAIT)
        await one.call(methods.CREATE_CONTAINER, short, within=WAIT)


async def test_two_that_both_send_much_and_read_late_do_not_wait_for_each_other_for_ever():
    big = pb.ContainerUpdate(container_id="x" * 3_000_000)

    async def update(request):
        return pb.UpdateContainersResponse(failed=request.update)

    async def stop(request):
        return pb.StopContainerResponse(update=[big])

    async with joined(runtime(UpdateContainers=update), plugin(StopContainer=stop)) as (one, other):
        request = pb.StopContainerRequest(container=pb.Container(id=big.container_id))
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(one.call(methods.STOP_CONTAINER, request, within=WAIT))
                group.create_task(
                    other.call(methods.UPDATE_CONTAINERS, pb.UpdateContainersRequest(update=[big]), within=WAIT)
                )


# Those who ask and do not read.


class Watched(MuxConnection):
    """Tells when what it writes begins to pile up."""

    def __init__(self, **handlers):
        services = Services(methods.PLUGIN, handlers)
        super().__init__(services, asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE)
        self.clogged = asyncio.Event()

    def pause_writing(self):
        super().pause_writing()
        self.clogged.set()


async def test_a_peer_that_asks_and_does_not_read_is_not_read_either_until_it_does():
    async def create(_):
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(args=["x" * 500_000]))

    connection = Watched(CreateContainer=create)
    async with facing(connection) as peer:
        peer.reader._transport.pause_reading()
        asked = [peer.ask(methods.CREATE_CONTAINER, pb.CreateContainerRequest()) for _ in range(40)]
        await connection.clogged.wait()
        assert not connection._transport.is_reading()
        asked += [peer.ask(methods.CREATE_CONTAINER, pb.CreateContainerRequest())]
        peer.reader._transport.resume_reading()
        assert sorted([await whole_answer(peer) for _ in asked]) == asked


async def whole_answer(peer):
    """The stream of the next answer, which may have come in two pieces."""
    frames, found = wire.Frames(), []
    while not found:
        _, length = mux.HEADER.unpack(await peer.reader.readexactly(mux.HEADER.size))
        found += frames.feed(await peer.reader.readexactly(length))
    return found[0].stream


async def test_a_side_that_waits_for_a_response_reads_although_the_peer_does_not():
    async def create(_):
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(args=["x" * 2_000_000]))

    connection = Watched(CreateContainer=create)
    async with facing(connection) as peer:
        peer.reader._transport.pause_reading()
        peer.ask(methods.CREATE_CONTAINER, pb.CreateContainerRequest())
        await connection.clogged.wait()
        waiting = asyncio.create_task(
            connection.call(methods.UPDATE_CONTAINERS, pb.UpdateContainersRequest(), within=WAIT)
        )
        await asyncio.sleep(0)
        peer.writer.write(mux.pieces(mux.RUNTIME_SERVICE, answer(1, b"")))
        assert await waiting == pb.UpdateContainersResponse()
        assert not connection._transport.is_reading()
        peer.reader._transport.resume_reading()
        assert await whole_answer(peer) == 1


async def test_a_peer_that_leaves_too_much_is_given_up():
    connection = runtime(MuxLimits(unsent=1_000_000))
    async with facing(connection) as peer:
        peer.reader._transport.pause_reading()
        with pytest.raises(ConnectionClosed, match=r"the peer does not read: \d+ bytes are unsent"):
            await connection.call(RUN, pb.RunPodSandboxRequest(pod=pb.PodSandbox(name="x" * 4_000_000)), within=WAIT)
        assert "does not read" in await connection.closed


async def test_closing_does_not_wait_for_a_peer_that_does_not_read():
    connection = runtime(MuxLimits(flush_seconds=0.01))
    async with facing(connection) as peer:
        peer.reader._transport.pause_reading()
        asked = asyncio.create_task(
            connection.call(RUN, pb.RunPodSandboxRequest(pod=pb.PodSandbox(name="x" * 4_000_000)), within=WAIT)
        )
        await asyncio.sleep(0)
        await connection.close("enough")
        with pytest.raises(ConnectionClosed, match="enough"):
            await asked


async def test_so_many_requests_are_handled_at_once_and_more_are_refused():
    gate = asyncio.Event()

    async def handler(_):
        await gate.wait()
        return pb.RunPodSandboxResponse()

    async with facing(plugin(RunPodSandbox=handler)) as peer:
        asked = [peer.ask(RUN, POD) for _ in range(MuxLimits().handling + 1)]
        assert (await peer.reply())[:2] == (asked[-1], ResourceExhausted.code)
        gate.set()
        assert sorted([(await peer.reply())[:2] for _ in asked[:-1]]) == [(item, 0) for item in asked[:-1]]
        peer.ask(RUN, POD)
        assert (await peer.reply())[1] == 0


# Who it is.


async def test_peer_credentials_are_known_after_the_peer_has_gone():
    async with joined(runtime(), plugin()) as (one, other):
        assert (one.peer_pid, one.peer_uid) == (os.getpid(), os.getuid())
        await other.close()
        await one.closed
        assert (one.peer_pid, one.peer_uid) == (os.getpid(), os.getuid())


async def test_a_connection_to_a_path(tmp_path):
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    class Far(MuxConnection):
        def connection_made(self, transport):
            super().connection_made(transport)
            arrived.set_result(self)

    def accepted():
        return Far(Services(methods.RUNTIME, {}), asks_on=mux.PLUGIN_SERVICE, answers_on=mux.RUNTIME_SERVICE)

    server = await loop.create_unix_server(accepted, str(tmp_path / "s"))
    client = plugin(RunPodSandbox=empty)
    await connect(tmp_path / "s", client)
    far = await arrived
    await far.call(RUN, POD, within=WAIT)
    await client.close()
    await far.closed
    server.close()
    await server.wait_closed()


async def test_without_a_listener_connecting_fails(tmp_path):
    with pytest.raises(FileNotFoundError):
        await connect(tmp_path / "nobody", plugin())
