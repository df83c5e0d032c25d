"""Calls that are watched: reported there and back, and not at all where nobody watches."""

import asyncio
import logging

import pytest

from podwire.interfaces import EVENT
from podwire.linux.proc import processes
from podwire.protocols.grpc_status import NotFound
from podwire.protocols.k8sapi.client_side import Interrupted, Reply
from podwire.protocols.k8sapi.server_side import Request, Response, Stream, Upgrade
from podwire.transports.tapped import Execution, Tapped, tapped_run
from podwire.transports.tapped_http import TappedHttp, tapped_handler


@pytest.fixture
def hops():
    return []


@pytest.fixture
def tapped(hops):
    return Tapped(hops.append, caller="a", callee="b")


def arrows(hops):
    return [(hop.caller, hop.callee, hop.method, hop.outcome) for hop in hops]


def test_a_call_without_a_tap_makes_nothing():
    unwatched = Tapped(None, caller="a", callee="b")
    first = unwatched.call("m", object())
    assert unwatched.call("n", object()) is first
    with first as passing:
        passing.answered(1)
        passing.streamed(1)
        passing.event(1)


def test_a_tap_receives_request_and_response(tapped, hops):
    with tapped.call("m", "asked") as passing:
        passing.event("meanwhile")
        passing.answered("answered", "201")
    assert arrows(hops) == [("a", "b", "m", ""), ("b", "a", "m", EVENT), ("b", "a", "m", "201")]
    assert [each.detail.get(name) for each, name in zip(hops, ("request", "event", "response"), strict=True)] == [
        "asked",
        "meanwhile",
        "answered",
    ]
    assert len({hop.detail["call"] for hop in hops}) == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(NotFound("gone"), "NOT_FOUND"), (asyncio.CancelledError(), "CANCELLED"), (OSError("no"), "OSError")],
)
def test_a_tap_receives_the_error_of_a_failed_call(error, outcome, tapped, hops):
    with pytest.raises(type(error)), tapped.call("m", None):
        raise error
    assert arrows(hops)[1] == ("b", "a", "m", outcome)
    assert hops[1].detail["error"] == str(error)


def test_a_tap_that_fails_is_dropped_and_logged_once(caplog):
    def tap(_hop):
        raise ValueError("broken")

    tapped = Tapped(tap, caller="a", callee="b")
    for _ in range(2):
        with tapped.call("m", None):
            pass
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_tap_receives_a_programs_input_and_output(tapped, hops):
    run = tapped_run(processes.run, tapped, lambda execution: execution.argv[0])
    done = run(["/bin/cat"], env={"A": "b"}, stdin=b"word", deadline=20.0)
    assert done == processes.Finished(0, b"word", b"")
    assert arrows(hops) == [("a", "b", "/bin/cat", ""), ("b", "a", "/bin/cat", "OK")]
    assert hops[0].detail["request"] == Execution(["/bin/cat"], {"A": "b"}, b"word")
    assert hops[1].detail["response"] == done


def test_a_tap_receives_the_exit_code_of_a_program(tapped, hops):
    run = tapped_run(processes.run, tapped, lambda _: "false")
    run(["/bin/false"], env={}, deadline=20.0)
    assert arrows(hops)[1][3] == "exit 1"


def request(method="GET", path="/api/v1/pods", body=b"", **more):
    async def read(_limit):
        return body

    return Request(method=method, path=path, headers={"user-agent": "me/1"}, read=read, **more)


def test_a_handler_without_a_tap_is_the_handler_itself():
    async def handler(_request):
        return Response(status=200)

    assert tapped_handler(handler, None, "server") is handler


async def test_a_tap_receives_an_http_request_with_its_bodies(hops):
    async def handler(asked):
        return Response(status=201, body=await asked.read(10))

    answer = await tapped_handler(handler, hops.append, "server")(
        request("POST", body=b"body", query={"a": ["b", "c"]})
    )
    assert answer == Response(status=201, body=b"body")
    method = "POST /api/v1/pods?a=b&a=c"
    assert arrows(hops) == [("me/1", "server", method, ""), ("server", "me/1", method, "201")]
    assert hops[1].detail["response"].asked.body == b"body"
    assert hops[1].detail["response"].body == b"body"


async def test_a_tap_receives_the_exception_of_a_handler(hops):
    async def handler(_request):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await tapped_handler(handler, hops.append, "server")(request())
    assert arrows(hops)[1][3] == "RuntimeError"


async def test_a_tap_receives_a_stream_chunk_by_chunk(hops):
    async def chunks():
        yield b"one"
        yield b"two"

    async def handler(_request):
        return Stream(chunks=chunks())

    answer = await tapped_handler(handler, hops.append, "server")(request())
    assert [hop.outcome for hop in hops] == [""]
    assert [chunk async for chunk in answer.chunks] == [b"one", b"two"]
    await answer.chunks.aclose()
    assert [hop.outcome for hop in hops] == ["", EVENT, EVENT, "200"]


async def test_a_stream_that_is_closed_before_its_first_chunk_ends_too(hops):
    closed = []

    class Chunks:
        def __aiter__(self):
            return self

        async def __anext__(self):
            raise AssertionError

        async def aclose(self):
            closed.append(True)

    async def handler(_request):
        return Stream(chunks=Chunks())

    answer = await tapped_handler(handler, hops.append, "server")(request())
    await answer.chunks.aclose()
    assert closed == [True]
    assert [hop.outcome for hop in hops] == ["", "200"]


async def test_a_tap_receives_an_upgrade(hops):
    async def handler(_request):
        return Upgrade(protocols=("v5",), run=None)

    await tapped_handler(handler, hops.append, "server")(request())
    assert [hop.outcome for hop in hops] == ["", "101"]


class Incoming:
    status = 200
    headers = {"content-type": "application/json"}  # noqa: RUF012 - a double, made once

    def __init__(self, *parts):
        self._parts = list(parts)

    async def read(self):
        part = self._parts.pop(0)
        if isinstance(part, Exception):
            raise part
        return part

    def close(self):
        pass


class Http:
    def __init__(self, *parts):
        self._incoming = Incoming(*parts)

    async def request(self, method, path, *, query=(), headers=None, body=b""):
        return Reply(200, {"content-type": "application/json"}, b"{}")

    async def stream(self, method, path, *, query=(), headers=None):
        return self._incoming


async def test_a_tapped_client_reports_its_requests(hops):
    http = TappedHttp(Http(), hops.append, caller="Kubelet", callee="APIServer")
    assert (await http.request("POST", "/api/v1/pods", query=(("a", "b"),), body=b"body")).body == b"{}"
    assert arrows(hops) == [
        ("Kubelet", "APIServer", "POST /api/v1/pods?a=b", ""),
        ("APIServer", "Kubelet", "POST /api/v1/pods?a=b", "200"),
    ]
    assert hops[1].detail["response"].asked.body == b"body"


@pytest.mark.parametrize("end", [b"", Interrupted("cut")], ids=["cleanly", "cut"])
async def test_a_tapped_client_reports_a_stream_line_by_line(end, hops):
    http = TappedHttp(Http(b"on", b"e\ntwo\nth", b"ree\n", end), hops.append, caller="Kubelet", callee="APIServer")
    incoming = await http.stream("GET", "/api/v1/pods")
    assert [await incoming.read() for _ in range(3)] == [b"on", b"e\ntwo\nth", b"ree\n"]
    try:
        assert await incoming.read() == b""
    except Interrupted:
        assert end
    incoming.close()
    assert [hop.detail["event"] for hop in hops if hop.outcome == EVENT] == [b"one\ntwo", b"three"]
    assert [hop.outcome for hop in hops][-1] == ("Interrupted" if end else "200")
    assert len(hops) == 4
