"""Questions and what their answers mean: a runtime in memory, and sockets on loopback."""

import asyncio
import contextlib
from typing import Any

import pytest

from podwire.kubelet.probes import ExecResult, NodeProber, ProbeFailed, ProbeUnknown
from podwire.kubelet.probes.check import Result, Subject, check, grpc_result, http_result
from podwire.objects.containers import Container, ExecAction, GrpcAction, HttpGet, Port, Probe, TcpSocket
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import DeadlineExceeded, NotFound, ResourceExhausted, Unavailable, Unimplemented
from podwire.protocols.k8sapi.client_side import Reply
from podwire.transports.probe_sockets import ProbeSockets


class Runtime:
    """A Cri with one method: ExecSync gives a configured answer."""

    def __init__(self, answer: pb.ExecSyncResponse | Exception | None = None) -> None:
        self.answer = answer or pb.ExecSyncResponse()
        self.asked: list[tuple[pb.ExecSyncRequest, float | None]] = []

    async def call(self, method: Any, request: Any, *, timeout: float | None) -> Any:  # noqa: ASYNC109 - as the port has it
        assert method.name == "ExecSync"
        self.asked.append((request, timeout))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def stream(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


class Silent:
    """Sockets on which nothing ever arrives, or a configured answer."""

    def __init__(self, *replies: Reply, error: Exception | None = None) -> None:
        self.urls: list[str] = []
        self._replies = list(replies)
        self._error = error

    async def http(self, url: str, headers: Any) -> Reply:
        self.urls.append(url)
        if not self._replies:
            await asyncio.Event().wait()
        return self._replies.pop(0)

    async def tcp(self, host: str, port: int) -> None:
        await asyncio.Event().wait()

    async def grpc(self, host: str, port: int, service: str) -> int:
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()
        return 0


async def test_a_command_is_run_by_the_runtime_within_its_time():
    runtime = Runtime(pb.ExecSyncResponse(stdout=b"out", stderr=b"err", exit_code=3))
    assert await NodeProber(runtime, Silent()).exec("c1", ("cat", "/x"), 2.5) == ExecResult(3, "outerr")
    request, timeout = runtime.asked[0]
    assert (request.container_id, list(request.cmd), request.timeout) == ("c1", ["cat", "/x"], 3)
    assert timeout is not None
    assert timeout > 2.5


async def test_a_command_without_a_limit_may_take_as_long_as_it_likes():
    runtime = Runtime()
    await NodeProber(runtime, Silent()).exec("c1", ("true",), None)
    assert (runtime.asked[0][0].timeout, runtime.asked[0][1]) == (0, None)


async def test_the_output_of_a_command_is_truncated():
    runtime = Runtime(pb.ExecSyncResponse(stdout=b"\xff" * 5_000_000, stderr=b"y" * 5_000_000, exit_code=1))
    assert (await NodeProber(runtime, Silent()).exec("c1", ("yes",), 1)).output == "\N{REPLACEMENT CHARACTER}" * 10240


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        pytest.param(
            DeadlineExceeded("late"), ProbeFailed, 'command timed out: "sleep 9" timed out after 1s', id="it hangs"
        ),
        pytest.param(ResourceExhausted("said too much"), ProbeFailed, "said too much", id="it says a gigabyte"),
        pytest.param(
            Unavailable("nobody"), ProbeUnknown, "rpc error: code = Unavailable desc = nobody", id="no runtime"
        ),
        pytest.param(NotFound("c1"), ProbeUnknown, "rpc error: code = NotFound desc = c1", id="no container"),
    ],
)
async def test_a_command_fails(error, kind, words):
    with pytest.raises(kind) as raised:
        await NodeProber(Runtime(error), Silent()).exec("c1", ("sleep", "9"), 1)
    assert words in str(raised.value)


async def test_silence_ends_with_the_time_given():
    prober = NodeProber(Runtime(), Silent())
    with pytest.raises(ProbeFailed, match=r'^Get "http://10.1.2.3:80/": context deadline exceeded'):
        await prober.http("http://10.1.2.3:80/", [], 0.01)
    with pytest.raises(ProbeFailed, match=r"^dial tcp \[fd00::1\]:80: i/o timeout$"):
        await prober.tcp("fd00::1", 80, 0.01)
    with pytest.raises(ProbeFailed, match=r"^timeout: health rpc did not complete within 0.01s$"):
        await prober.grpc("10.1.2.3", 80, "", 0.01)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(
            Unimplemented("unknown service"), "does not implement the grpc health protocol", id="tells nothing"
        ),
        pytest.param(
            NotFound("db"), "error: health rpc probe failed: rpc error: code = NotFound desc = db", id="unknown"
        ),
        pytest.param(DeadlineExceeded("x"), "timeout: health rpc did not complete within 1s", id="too late"),
    ],
)
async def test_a_grpc_server_refuses(error, words):
    with pytest.raises(ProbeFailed) as raised:
        await NodeProber(Runtime(), Silent(error=error)).grpc("10.1.2.3", 80, "db", 1)
    assert words in str(raised.value)


def to(location: str) -> Reply:
    return Reply(302, {"location": location}, b"moved")


async def test_a_redirect_on_the_same_host_is_followed():
    sockets = Silent(to("/b"), to("http://10.1.2.3:81/c"), Reply(200, {}, b""))
    assert (await NodeProber(Runtime(), sockets).http("http://10.1.2.3:80/a", [], 20)).status == 200
    assert sockets.urls == ["http://10.1.2.3:80/a", "http://10.1.2.3:80/b", "http://10.1.2.3:81/c"]


async def test_a_redirect_to_another_host_is_the_answer():
    sockets = Silent(to("/b"), to("http://169.254.169.254/latest"))
    assert (await NodeProber(Runtime(), sockets).http("http://10.1.2.3:80/a", [], 20)).status == 302
    assert len(sockets.urls) == 2


async def test_going_round_in_circles_ends():
    sockets = Silent(*[to("/a")] * 50)
    with pytest.raises(ProbeFailed, match="stopped after 10 redirects"):
        await NodeProber(Runtime(), sockets).http("http://10.1.2.3:80/a", [], 20)
    assert len(sockets.urls) == 10


@pytest.mark.parametrize(
    ("status", "passed", "text"),
    [
        pytest.param(200, True, "", id="200"),
        pytest.param(299, True, "", id="299"),
        pytest.param(
            302, True, "Probe terminated redirects, Response body: moved", id="a redirect passes with a warning"
        ),
        pytest.param(399, True, "Probe terminated redirects, Response body: moved", id="399"),
        pytest.param(400, False, "HTTP probe failed with statuscode: 400", id="400"),
        pytest.param(503, False, "HTTP probe failed with statuscode: 503", id="503"),
        pytest.param(101, False, "HTTP probe failed with statuscode: 101", id="101"),
    ],
)
def test_an_http_status_means(status, passed, text):
    assert http_result(Reply(status, {}, b"moved")) == Result(passed, text)


@pytest.mark.parametrize(
    ("status", "said"), [(0, "UNKNOWN"), (2, "NOT_SERVING"), (3, "SERVICE_UNKNOWN"), (9, "9"), (-1, "-1")]
)
def test_only_a_server_that_serves_is_healthy(status, said):
    assert grpc_result(1) == Result(passed=True)
    assert grpc_result(status) == Result(passed=False, text=f'service unhealthy (responded with "{said}")')


class Web:
    """An HTTP server on loopback: a status by the path, and the heads that it was sent."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.port = 0
        self.talks: list[asyncio.Task[None]] = []
        self.met = asyncio.Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.talks.append(asyncio.current_task())
        self.met.set()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            path = head.split()[1]
            status, location = (
                (302, "/200") if path == "/round" else (302, "http://[::1]:1/") if path == "/out" else (path[1:], "")
            )
            where = f"Location: {location}\r\n" if location else ""
            writer.write(f"HTTP/1.1 {status} Word\r\n{where}Content-Length: 0\r\n\r\n".encode())
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.fixture
async def web():
    found = Web()
    server = await asyncio.start_server(found.talk, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    await server.wait_closed()
    await asyncio.gather(*found.talks)


@pytest.fixture
def asked(web):
    """Asks the server on loopback as if it were a container."""

    async def ask(runtime: Runtime | None = None, **action: Any) -> Result:
        container = Container(name="app", ports=(Port(container_port=web.port, name="web"),))
        prober = NodeProber(runtime or Runtime(), ProbeSockets())
        return await check(Probe(timeout_seconds=20, **action), Subject(container, "c1", ("127.0.0.1",)), prober)

    return ask


@pytest.mark.parametrize(
    ("path", "result"),
    [
        pytest.param("/200", Result(passed=True), id="fine"),
        pytest.param("/round", Result(passed=True), id="moved, and fine there"),
        pytest.param("/500", Result(passed=False, text="HTTP probe failed with statuscode: 500"), id="not fine"),
        pytest.param(
            "/out", Result(passed=True, text="Probe terminated redirects, Response body: "), id="moved out of reach"
        ),
    ],
)
async def test_an_http_probe_asks_a_real_server(asked, web, path, result):
    assert await asked(http_get=HttpGet(port="web", path=path)) == result
    assert "User-Agent: kube-probe/1.36\r\nAccept: */*\r\n" in web.heads[0]


async def test_a_tcp_probe_asks_a_real_server(asked, web):
    assert await asked(tcp_socket=TcpSocket(port="web")) == Result(passed=True)
    await web.met.wait()


async def test_a_tcp_probe_fails_at_a_closed_port(asked):
    result = await asked(tcp_socket=TcpSocket(port=1))
    assert result == Result(passed=False, text="dial tcp 127.0.0.1:1: connect: connection refused")


async def test_a_grpc_probe_meets_a_server_that_speaks_something_else(asked, web):
    result = await asked(grpc=GrpcAction(port=web.port))
    assert not result.passed
    assert result.text.startswith("error: health rpc probe failed: rpc error: code = ")


@pytest.mark.parametrize(("code", "result"), [(0, Result(passed=True)), (1, Result(passed=False, text="no"))])
async def test_a_command_passes_with_exit_code_zero(asked, code, result):
    runtime = Runtime(pb.ExecSyncResponse(stdout=b"no", exit_code=code))
    assert await asked(runtime, exec=ExecAction(command=("true",))) == result


async def test_a_probe_that_asks_nothing_has_no_result(asked):
    with pytest.raises(ProbeUnknown, match="missing probe handler"):
        await asked()
