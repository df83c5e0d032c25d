"""Bytes of a connection, understood on the side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.nri.proxy import Decoder, Exchange, Noted, Summary
from podwire.nri.proxy.decoder import PLUGIN, RUNTIME
from podwire.nri.proxy.summary import line
from podwire.protocols.grpc_methods import Unary
from podwire.protocols.grpc_status import Unavailable
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event, as_state_change
from podwire.protocols.ttrpc import mux, wire
from podwire.protocols.ttrpc.sides import Asking, answer, refuse

POD = pb.PodSandbox(name="web", namespace="default")


class Wire:
    """Both sides of a connection, as bytes."""

    def __init__(self) -> None:
        self.watcher = Decoder()
        self.now = 0.0
        self.seen: list = []
        self._asking = {RUNTIME: Asking(), PLUGIN: Asking()}

    def asks(self, who: str, method: Unary, request, timeout: float | None = None) -> int:
        payload = request.SerializeToString()
        stream, frame = self._asking[who].request(method.service, method.name, payload, timeout=timeout)
        self.passes(who, mux.pieces(mux.PLUGIN_SERVICE if who == RUNTIME else mux.RUNTIME_SERVICE, frame))
        return stream

    def passes(self, who: str, data: bytes, step: int = 7) -> None:
        for at in range(0, len(data), step):
            self.seen += self.watcher.feed(who, data[at : at + step], self.now)

    def exchange(self, who: str, method: Unary, request, response, took: float = 0.01) -> Exchange:
        stream = self.asks(who, method, request)
        self.now += took
        other = PLUGIN if who == RUNTIME else RUNTIME
        frame = (
            refuse(stream, response)
            if isinstance(response, Exception)
            else answer(stream, response.SerializeToString())
        )
        self.passes(other, mux.pieces(mux.PLUGIN_SERVICE if who == RUNTIME else mux.RUNTIME_SERVICE, frame))
        return self.seen[-1]

    def registers(self) -> None:
        self.exchange(
            PLUGIN, methods.REGISTER_PLUGIN, pb.RegisterPluginRequest(plugin_name="a", plugin_idx="10"), pb.Empty()
        )
        configure = pb.ConfigureRequest(request_timeout=2000, registration_timeout=5000)
        self.exchange(RUNTIME, methods.CONFIGURE, configure, pb.ConfigureResponse(events=1))


@pytest.fixture
def between() -> Wire:
    return Wire()


def test_a_call_has_a_plugin_a_subject_a_time_and_a_share_of_its_budget(between):
    between.registers()
    seen = between.exchange(
        RUNTIME, methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(pod=POD), pb.RunPodSandboxResponse(), took=0.5
    )
    assert (seen.plugin, seen.asked_by, seen.method, seen.subject) == ("10-a", RUNTIME, "RunPodSandbox", "default/web")
    assert seen.took == pytest.approx(0.5)
    assert seen.share == pytest.approx(0.25)
    assert seen.outcome == "OK"
    assert "25% of 2 s" in line(seen)


def test_changes_are_reported_value_by_value(between):
    between.registers()
    response = pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(env=[pb.KeyValue(key="A", value="b")]))
    response.adjust.linux.resources.memory.limit.value = 5
    request = pb.CreateContainerRequest(pod=POD, container=pb.Container(name="app"))
    seen = between.exchange(RUNTIME, methods.CREATE_CONTAINER, request, response)
    assert seen.changes == ["adjust.env.A=b", "adjust.linux.resources.memory.limit=5"]
    assert seen.subject == "default/web app"
    assert seen.plain()["response"] == {"adjust": {"env": {"A": "b"}, "linux": {"resources": {"memory": {"limit": 5}}}}}


def test_an_error_is_reported_with_code_and_message(between):
    seen = between.exchange(RUNTIME, methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(pod=POD), Unavailable("not now"))
    assert (seen.outcome, str(seen.error)) == ("UNAVAILABLE", "not now")
    assert "✕ UNAVAILABLE: not now" in line(seen)


def test_a_state_change_is_reported_by_its_event(between):
    result = as_state_change(Event.STOP_POD_SANDBOX, pb.StopPodSandboxRequest(pod=POD))
    seen = between.exchange(RUNTIME, methods.STATE_CHANGE, result, pb.Empty())
    assert (seen.method, seen.via, seen.subject) == ("StopPodSandbox", "StateChange", "default/web")


def test_a_call_by_the_plugin_is_reported_as_such(between):
    request = pb.UpdateContainersRequest(update=[pb.ContainerUpdate(container_id="x")])
    seen = between.exchange(PLUGIN, methods.UPDATE_CONTAINERS, request, pb.UpdateContainersResponse())
    assert (seen.asked_by, seen.changes) == (PLUGIN, ["update[0].container_id=x"])


def test_unanswered_calls_are_reported_at_the_end(between):
    between.asks(RUNTIME, methods.STOP_CONTAINER, pb.StopContainerRequest(pod=POD), timeout=2.0)
    [left] = between.watcher.end(3.0)
    assert (left.outcome, left.took, left.share) == ("no answer", 3.0, 1.5)


@pytest.mark.parametrize(
    ("sender", "data", "says"),
    [
        pytest.param(PLUGIN, b"\xff" * 20, "from here on", id="garbage"),
        pytest.param(PLUGIN, mux.pieces(9, b"x"), "unknown conversation 9", id="another conversation"),
        pytest.param(PLUGIN, mux.pieces(1, answer(5, b"")), "without a request", id="an answer for no call"),
        pytest.param(
            RUNTIME, mux.pieces(1, wire.encode(1, wire.REQUEST, b"\xff")), "an invalid request", id="no request"
        ),
        pytest.param(RUNTIME, mux.pieces(1, wire.encode(1, wire.DATA, b"")), "kind 3", id="data"),
    ],
)
def test_invalid_frames_are_noted_and_decoding_continues(between, sender, data, says):
    between.passes(sender, data)
    [note] = between.seen
    assert isinstance(note, Noted)
    assert says in note.what
    other = RUNTIME if sender == PLUGIN else PLUGIN
    between.asks(other, methods.SHUTDOWN if other == RUNTIME else methods.REGISTER_PLUGIN, pb.RegisterPluginRequest())
    assert len(between.watcher.end(1.0)) == 1


def test_an_answer_that_is_too_long_is_an_error_of_that_call(between):
    stream = between.asks(RUNTIME, methods.SHUTDOWN, pb.Empty())
    head = wire.HEADER.pack(5_000_000, stream, wire.RESPONSE, 0)
    between.passes(PLUGIN, mux.HEADER.pack(1, len(head)) + head)
    assert between.seen[-1].outcome == "RESOURCE_EXHAUSTED"


def test_the_summary_has_a_row_for_each_call_of_each_plugin(between):
    summary = Summary()
    between.registers()
    for took in (0.1, 0.3, 0.2):
        request = pb.RunPodSandboxRequest(pod=POD)
        summary.add(between.exchange(RUNTIME, methods.RUN_POD_SANDBOX, request, pb.RunPodSandboxResponse(), took=took))
    [row] = summary.plain()
    assert (row["plugin"], row["method"], row["calls"], row["failed"]) == ("10-a", "RunPodSandbox", 3, 0)
    assert (row["p50"], row["max"], row["max_share"]) == (pytest.approx(0.2), pytest.approx(0.3), pytest.approx(0.15))
    assert summary.lines()[1].split() == ["10-a", "RunPodSandbox", "3", "0", "200.0", "ms", "300.0", "ms", "15%"]


@given(st.lists(st.tuples(st.sampled_from([RUNTIME, PLUGIN]), st.binary(max_size=64)), max_size=8))
def test_no_bytes_stop_it(parts):
    watcher = Decoder()
    for sender, data in parts:
        watcher.feed(sender, data, 0.0)
    watcher.end(1.0)
