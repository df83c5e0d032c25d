"""gRPC over real unix sockets, ours on both ends: what handlers see, what callers get, how it ends."""

import asyncio
import contextlib
import gc
import logging
import select
import socket
import stat
import time

import grpc
import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_methods import MAX_MESSAGE, BadTable
from podwire.protocols.grpc_status import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    RpcError,
    Unavailable,
    Unimplemented,
)
from podwire.transports.grpc_client import connect
from podwire.transports.grpc_server import serve
from podwire.transports.unix_sockets import CannotListen
from tests.eventually import eventually_async

VERSION = pb.VersionResponse(version="0.1.0", runtime_name="podwire", runtime_version="0.1.0", runtime_api_version="v1")


async def version(_request: pb.VersionRequest) -> pb.VersionResponse:
    return VERSION


@pytest.fixture
async def served(tmp_path):
    """`await served(handlers)` gives a server at `served.path` that is closed after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(handlers, **options):
            server = await serve(start.path, methods.ALL, handlers, **options)
            stack.push_async_callback(server.close, 0.2)
            return server

        start.path = tmp_path / "s.sock"
        yield start


@pytest.fixture
async def client(served):
    async with connect(served.path) as client:
        yield client


@pytest.mark.parametrize("steps", range(6))
async def test_a_start_that_is_cancelled_leaves_neither_a_socket_nor_a_server(tmp_path, caplog, steps):
    """gRPC starts in a task of its own: left alone it would serve on, and a test that forgets it waits without end."""
    place = tmp_path / "s.sock"
    starting = asyncio.create_task(serve(place, methods.ALL, {"Version": version}))
    for _ in range(steps):
        await asyncio.sleep(0)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await starting).close(0.2)
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert caplog.text == ""


async def test_a_call_reaches_its_handler_and_its_answer_comes_back(served, client):
    asked = []

    async def run(request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        asked.append(request)
        return pb.RunPodSandboxResponse(pod_sandbox_id="a" * 64)

    await served({"RunPodSandbox": run})
    request = pb.RunPodSandboxRequest(config=pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="web")))
    answer = await client.call(methods.RUN_POD_SANDBOX, request, timeout=30)
    assert answer == pb.RunPodSandboxResponse(pod_sandbox_id="a" * 64)
    assert asked == [request]


async def test_a_stream_has_the_responses_of_its_handler(served, client):
    async def containers(_request):
        for letter in "abc":
            yield pb.StreamContainersResponse(containers=[pb.Container(id=letter)])

    await served({"StreamContainers": containers})
    got = [item async for item in client.stream(methods.STREAM_CONTAINERS, pb.StreamContainersRequest())]
    assert [item.containers[0].id for item in got] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "error",
    [
        NotFound("no container with id x"),
        InvalidArgument("metadata: required"),
        AlreadyExists("x"),
        FailedPrecondition("sandbox is not ready"),
        Unavailable("later"),
        DeadlineExceeded("exec took longer than 1 s"),
        ResourceExhausted("all"),
        Internal("why"),
        Unimplemented("never"),
        NotFound(""),
        NotFound("Prüfung 100% — \n two lines ✓"),
    ],
    ids=repr,
)
async def test_an_error_of_the_tree_travels_with_its_code_and_its_words(served, client, error):
    async def status(_request):
        raise error

    async def events(_request):
        yield pb.ContainerEventResponse(container_id="first")
        raise error

    await served({"ContainerStatus": status, "GetContainerEvents": events})
    with pytest.raises(type(error)) as caught:
        await client.call(methods.CONTAINER_STATUS, pb.ContainerStatusRequest(), timeout=30)
    assert str(caught.value) == str(error)
    with pytest.raises(type(error)) as caught:
        [item async for item in client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())]
    assert str(caught.value) == str(error)


async def test_a_sentence_that_no_header_could_carry_is_cut(served, client):
    async def status(_request):
        raise NotFound("é" * 100_000)

    await served({"ContainerStatus": status})
    with pytest.raises(NotFound, match=r"^é{600,} \[…\]$"):
        await client.call(methods.CONTAINER_STATUS, pb.ContainerStatusRequest(), timeout=30)


async def test_a_fault_is_logged_and_the_caller_learns_only_that_there_was_one(served, client, caplog):
    async def status(_request):
        raise KeyError("secret")

    await served({"ContainerStatus": status})
    with pytest.raises(Internal, match="ContainerStatus failed") as caught:
        await client.call(methods.CONTAINER_STATUS, pb.ContainerStatusRequest(), timeout=30)
    assert "secret" not in str(caught.value)
    assert "KeyError: 'secret'" in caplog.text
    assert caplog.records[-1].method == "ContainerStatus"


async def test_a_handler_that_answers_something_else_is_a_fault(served, client, caplog):
    async def status(_request):
        return VERSION

    await served({"ContainerStatus": status})
    with pytest.raises(Internal):
        await client.call(methods.CONTAINER_STATUS, pb.ContainerStatusRequest(), timeout=30)
    assert "answered VersionResponse, expected ContainerStatusResponse" in caplog.text


@pytest.mark.parametrize("path", ["/runtime.v1.RuntimeService/CheckpointContainer", "/runtime.v1.RuntimeService/Dance"])
async def test_a_method_without_a_handler_is_unimplemented(served, path):
    await served({"Version": version})
    async with grpc.aio.insecure_channel(f"unix:{served.path}") as channel:
        for call in (channel.unary_unary(path)(b""), channel.stream_stream(path)(iter([b""])).read()):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert caught.value.details() == f"{path.rpartition('/')[2]} is not supported by podwire"


async def test_a_stream_without_a_handler_is_unimplemented(served, client):
    await served({"Version": version})
    with pytest.raises(Unimplemented, match="GetContainerEvents is not supported by podwire"):
        await anext(client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest()))


async def test_an_invalid_request_is_an_invalid_argument(served):
    await served({"Version": version})
    async with grpc.aio.insecure_channel(f"unix:{served.path}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(methods.VERSION.path)(b"\xff\xff\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "Version: the request is not a valid VersionRequest"


async def given_up(client, method, request, begun: asyncio.Event):
    """A call whose caller leaves when its work is begun."""
    calling = asyncio.create_task(client.call(method, request, timeout=None))
    async with asyncio.timeout(30):
        await begun.wait()
    calling.cancel()
    await asyncio.wait([calling])


START = pb.StartContainerRequest(container_id="x")


async def test_a_caller_that_gives_up_does_not_cancel_an_uncancelled_call(served, client):
    ended, begun, gate = [], asyncio.Event(), asyncio.Event()

    async def handler(request):
        try:
            begun.set()
            await gate.wait()
            ended.append("completed")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return pb.StartContainerResponse() if isinstance(request, pb.StartContainerRequest) else VERSION

    await served({"StartContainer": handler, "Version": handler})
    await given_up(client, methods.VERSION, pb.VersionRequest(), begun)
    await eventually_async(lambda: ended == ["cancelled"])
    begun.clear()
    await given_up(client, methods.START_CONTAINER, START, begun)
    with pytest.raises(DeadlineExceeded):
        await client.call(methods.START_CONTAINER, START, timeout=1)
    assert ended == ["cancelled"]
    gate.set()
    await eventually_async(lambda: ended == ["cancelled", "completed", "completed"])
    assert await client.call(methods.START_CONTAINER, START, timeout=30) == pb.StartContainerResponse()


async def test_uncancelled_call_fails_to_its_caller_or_to_the_log(served, client, caplog):
    begun = asyncio.Event()

    async def handler(_request):
        begun.set()
        await asyncio.sleep(0.1)
        raise NotFound("gone meanwhile")

    await served({"StartContainer": handler})
    with pytest.raises(NotFound, match="gone meanwhile"):
        await client.call(methods.START_CONTAINER, START, timeout=30)
    assert caplog.text == ""
    begun.clear()
    await given_up(client, methods.START_CONTAINER, START, begun)
    await eventually_async(lambda: "work failed after its caller was cancelled" in caplog.text)
    assert "gone meanwhile" in caplog.text


async def test_messages_up_to_16_mib_travel_and_larger_ones_are_refused(served, client):
    async def exec_sync(request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
        return pb.ExecSyncResponse(stdout=b"x" * request.timeout)

    await served({"ExecSync": exec_sync})
    most = MAX_MESSAGE - 16
    answer = await client.call(methods.EXEC_SYNC, pb.ExecSyncRequest(timeout=most), timeout=20)
    assert len(answer.stdout) == most
    with pytest.raises(Internal, match=r"the response has \d+ bytes"):
        await client.call(methods.EXEC_SYNC, pb.ExecSyncRequest(timeout=MAX_MESSAGE), timeout=20)
    with pytest.raises(ResourceExhausted):
        await client.call(methods.EXEC_SYNC, pb.ExecSyncRequest(cmd=["x" * MAX_MESSAGE]), timeout=20)
    assert len((await client.call(methods.EXEC_SYNC, pb.ExecSyncRequest(timeout=1), timeout=30)).stdout) == 1


async def test_only_the_owner_can_reach_the_socket(served, tmp_path):
    served.path = tmp_path / "made" / "s.sock"
    await served({"Version": version})
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(served.path.stat().st_mode)
    assert stat.S_IMODE(served.path.parent.stat().st_mode) == 0o700
    assert [item.name for item in served.path.parent.iterdir()] == ["s.sock"]


async def test_a_path_with_any_characters_works(served, tmp_path):
    served.path = tmp_path / "a b%41ü#?" / "s.sock"
    await served({"Version": version})
    async with connect(served.path) as client:
        assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=30) == VERSION


async def test_a_dead_servers_socket_is_replaced(served, client):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(served.path))
        dead.listen()
    await served({"Version": version})
    assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=30) == VERSION


async def test_a_living_servers_socket_is_left_alone(served, client):
    await served({"Version": version})
    with pytest.raises(CannotListen, match="another server listens on it"):
        await served({})
    assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=30) == VERSION
    assert [item.name for item in served.path.parent.iterdir()] == ["s.sock"]


async def test_of_two_servers_that_start_at_once_one_wins(served, client):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(served.path))
    outcomes = await asyncio.gather(*(served({"Version": version}) for _ in range(4)), return_exceptions=True)
    assert len([outcome for outcome in outcomes if isinstance(outcome, CannotListen)]) == 3
    assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=30) == VERSION


async def test_a_file_that_is_not_a_socket_is_never_replaced(served):
    served.path.write_text("precious")
    with pytest.raises(CannotListen, match="exists and is not a socket"):
        await served({})
    assert served.path.read_text() == "precious"


async def test_a_path_that_is_too_long_is_an_error(served, tmp_path):
    served.path = tmp_path / ("x" * 107)
    with pytest.raises(CannotListen, match="the path of a socket has at most 107"):
        await served({})


async def test_closing_takes_away_the_own_socket_only(served):
    first = await served({"Version": version})
    served.path.unlink()
    await served({"Version": version})
    await first.close(0.1)
    async with connect(served.path) as client:
        assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=30) == VERSION


async def test_a_handler_and_a_table_that_do_not_fit_are_refused_at_once(tmp_path):
    with pytest.raises(BadTable, match="Versoin: a handler for a method that is not in the table"):
        await serve(tmp_path / "s", methods.ALL, {"Versoin": version})
    with pytest.raises(BadTable, match="Version: in the table more than once"):
        await serve(tmp_path / "s", [methods.VERSION, methods.VERSION], {})
    assert list(tmp_path.iterdir()) == []


async def test_closing_ends_streams_with_unavailable(served, client):
    closed = []

    async def events(_request):
        try:
            yield pb.ContainerEventResponse(container_id="x")
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    server = await served({"GetContainerEvents": events})
    stream = client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())
    await anext(stream)
    closing = asyncio.create_task(server.close(300))
    with pytest.raises(Unavailable, match="podwire is stopping"):
        await anext(stream)
    async with asyncio.timeout(30):
        await closing
    assert closed == [True]
    assert not served.path.exists()


async def test_a_stream_that_is_just_being_written_to_is_ended_behind_that(served, client):
    async def events(_request):
        asyncio.get_running_loop().call_soon(server._answers.end_streams)
        yield pb.ContainerEventResponse(container_id="x")
        await asyncio.Event().wait()

    server = await served({"GetContainerEvents": events})
    stream = client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest(), timeout=30)
    assert (await anext(stream)).container_id == "x"
    with pytest.raises(Unavailable, match="podwire is stopping"):
        await anext(stream)


async def test_closing_waits_for_calls_and_cuts_those_that_take_too_long(served, client):
    begun, ended, gate = [], [], asyncio.Event()

    async def slow(request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        begun.append(request.container_id)
        try:
            await (gate if request.container_id == "quick" else asyncio.Event()).wait()
            ended.append(request.container_id)
        finally:
            ended.append("left")
        return pb.StopContainerResponse()

    server = await served({"StopContainer": slow})
    calls = [
        asyncio.create_task(client.call(methods.STOP_CONTAINER, pb.StopContainerRequest(container_id=name), timeout=30))
        for name in ("quick", "endless")
    ]
    await eventually_async(lambda: len(begun) == 2)
    closing = asyncio.create_task(server.close(2))
    await eventually_async(lambda: not served.path.exists())
    gate.set()
    await closing
    assert ended == ["quick", "left", "left"]
    assert await calls[0] == pb.StopContainerResponse()
    with pytest.raises(RpcError):
        await calls[1]


async def test_closing_waits_for_uncancelled_calls(served, client, caplog):
    begun, gate, done = asyncio.Event(), asyncio.Event(), []

    async def handler(request: pb.StartContainerRequest):
        begun.set()
        await (gate if request.container_id == "quick" else asyncio.Event()).wait()
        done.append(request.container_id)
        return pb.StartContainerResponse()

    server = await served({"StartContainer": handler})
    for name in ("quick", "endless"):
        begun.clear()
        await given_up(client, methods.START_CONTAINER, pb.StartContainerRequest(container_id=name), begun)
    closing = asyncio.create_task(server.close(2))
    await eventually_async(lambda: not served.path.exists())
    gate.set()
    await closing
    assert done == ["quick"]
    assert [record.getMessage() for record in caplog.records] == ["cancelled unfinished work at shutdown"]


async def test_a_client_connects_once_the_server_listens(served, client):
    with pytest.raises(Unavailable):
        await client.call(methods.VERSION, pb.VersionRequest(), timeout=30)
    server = await served({"Version": version})
    await asyncio.sleep(0.3)
    assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=30) == VERSION
    await server.close(0.1)
    with pytest.raises(Unavailable):
        await client.call(methods.VERSION, pb.VersionRequest(), timeout=30)
    await served({"Version": version})

    await asyncio.sleep(0.3)
    assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=30) == VERSION


async def test_a_server_that_is_slow_to_greet_is_waited_for(served, tmp_path):
    """A busy machine is not a reason to say that nobody is there."""
    await served({"Version": version})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "slow.sock"))
        listener.listen()
        passing = asyncio.create_task(asyncio.to_thread(pass_on_late, listener, served.path, 0.5))
        async with connect(tmp_path / "slow.sock") as client:
            assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=20) == VERSION
        await passing


def pass_on_late(listener, path, seconds):
    """One connection, to the server at the path and back, until either end closes it."""
    here, _ = listener.accept()
    time.sleep(seconds)
    with contextlib.suppress(ConnectionError), here, socket.socket(socket.AF_UNIX) as there:
        there.connect(str(path))
        ends = {here: there, there: here}
        while True:
            for item in select.select(list(ends), [], [])[0]:
                if not (data := item.recv(65536)):
                    return
                ends[item].sendall(data)


async def test_a_client_that_closes_a_stream_ends_the_handler(served, client):
    closed = asyncio.Event()

    async def events(_request):
        try:
            while True:
                yield pb.ContainerEventResponse(container_id="x")
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    await served({"GetContainerEvents": events})
    stream = client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())
    await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(30):
        await closed.wait()


async def test_an_invalid_response_is_an_internal_error(tmp_path):
    async def nonsense(_request, _context):
        return b"\xff\xff"

    server = grpc.aio.server()
    handlers = {"Version": grpc.unary_unary_rpc_method_handler(nonsense)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(methods.RUNTIME, handlers)])
    server.add_insecure_port(f"unix:{tmp_path}/s")
    await server.start()
    try:
        async with connect(tmp_path / "s") as client:
            with pytest.raises(Internal, match="is not a valid VersionResponse"):
                await client.call(methods.VERSION, pb.VersionRequest(), timeout=30)
    finally:
        await server.stop(None)


async def test_a_tap_receives_both_hops_of_each_call_on_both_sides(served):
    async def status(_request):
        raise NotFound("no such container")

    async def containers(_request):
        yield pb.StreamContainersResponse()
        yield pb.StreamContainersResponse()

    handlers = {"Version": version, "ContainerStatus": status, "StreamContainers": containers}
    hops = {"server": [], "client": []}
    await served(handlers, tap=hops["server"].append, caller="kubelet", callee="runtime")
    async with connect(served.path, tap=hops["client"].append, caller="kubelet", callee="runtime") as client:
        await client.call(methods.VERSION, pb.VersionRequest(version="v1"), timeout=30)
        with pytest.raises(NotFound):
            await client.call(methods.CONTAINER_STATUS, pb.ContainerStatusRequest(), timeout=30)
        async for _ in client.stream(methods.STREAM_CONTAINERS, pb.StreamContainersRequest()):
            pass
    for side in hops.values():
        assert [(item.caller, item.callee, item.method, item.outcome) for item in side] == [
            ("kubelet", "runtime", "Version", ""),
            ("runtime", "kubelet", "Version", "OK"),
            ("kubelet", "runtime", "ContainerStatus", ""),
            ("runtime", "kubelet", "ContainerStatus", "NOT_FOUND"),
            ("kubelet", "runtime", "StreamContainers", ""),
            ("runtime", "kubelet", "StreamContainers", "OK"),
        ]
        assert side[0].detail["request"] == pb.VersionRequest(version="v1")
        assert side[1].detail["response"] == VERSION
        assert side[3].detail["error"] == "no such container"
        assert side[5].detail["responses"] == 2
        numbers = [item.detail["call"] for item in side]
        assert numbers[0::2] == numbers[1::2]
        assert len(set(numbers)) == 3


async def test_a_tap_that_fails_is_dropped_and_the_calls_go_on(served, client, caplog):
    hops = []

    def tap(hop):
        hops.append(hop)
        raise RuntimeError("recorder broke")

    await served({"Version": version}, tap=tap)
    for _ in range(2):
        assert await client.call(methods.VERSION, pb.VersionRequest(), timeout=30) == VERSION
    assert len(hops) == 1
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "trace tap failed and was removed")
    ]


async def test_a_client_sees_its_server_come_and_go_without_asking(served):
    async with asyncio.timeout(60), connect(served.path) as client:
        there = client.connections()
        assert await anext(there) is False
        server = await served({"Version": version})
        assert await anext(there) is True
        await server.close(0)
        assert await anext(there) is False
        await served({"Version": version})
        assert await anext(there) is True
        await there.aclose()
