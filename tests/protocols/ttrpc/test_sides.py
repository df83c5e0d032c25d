"""Order of messages by sender. The rules on bytes are vectors (see ../nri/vectors); here is what bytes do not show."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.grpc_status import Internal, NotFound, ResourceExhausted
from podwire.protocols.ttrpc import sides, ttrpc_pb2, wire
from podwire.protocols.ttrpc.call import Call, current, enter
from podwire.protocols.ttrpc.sides import Answered, Answering, Asked, Asking, Ignored, Refused, TooLong, answer, refuse
from podwire.protocols.ttrpc.wire import Frame, Frames


def frame_of(data):
    [frame] = Frames().feed(data)
    return frame


def asked(**beside):
    _, frame = Asking().request("s", "m", b"p", **beside)
    return Answering().receive(frame_of(frame))


def test_a_callers_streams_are_odd_and_rise():
    asking = Asking()
    assert [asking.request("s", "m", b"")[0] for _ in range(4)] == [1, 3, 5, 7]


def test_a_request_arrives_unchanged():
    result = asked(timeout=1.5, metadata=[("Traceparent", "00-a-b-01"), ("k", "1"), ("K", "2")])
    assert result == Asked(1, "s", "m", b"p", 1.5, {"traceparent": ("00-a-b-01",), "k": ("1", "2")})


@pytest.mark.parametrize(
    ("reported", "nanoseconds"),
    [
        pytest.param(None, 0, id="none"),
        pytest.param(2.0, 2_000_000_000, id="seconds"),
        pytest.param(0.0, 1, id="no time at all is not the same as not saying"),
        pytest.param(float("inf"), 9_000_000_000_000_000_000, id="for ever"),
        pytest.param(1e12, 9_000_000_000_000_000_000, id="longer than the field can say"),
    ],
)
def test_the_time_out_is_sent_in_nanoseconds(reported, nanoseconds):
    _, frame = Asking().request("s", "m", b"", timeout=reported)
    assert ttrpc_pb2.Request.FromString(frame_of(frame).data).timeout_nano == nanoseconds


def test_a_request_that_is_too_long_is_not_asked_and_takes_no_number():
    asking = Asking()
    with pytest.raises(TooLong, match="and a frame holds 4194304") as caught:
        asking.request("s", "m", b"x" * wire.MAX_DATA)
    assert isinstance(caught.value, ResourceExhausted)
    assert caught.value.size > wire.MAX_DATA
    assert asking.request("s", "m", b"")[0] == 1


def test_a_connection_has_only_so_many_streams():
    asking = Asking()
    asking._next = wire.MAX_STREAM
    assert asking.request("s", "m", b"")[0] == wire.MAX_STREAM
    with pytest.raises(ResourceExhausted, match="no stream left"):
        asking.request("s", "m", b"")


def test_a_response_that_is_too_long_becomes_an_error():
    asking = Asking()
    stream, _ = asking.request("s", "m", b"")
    got = asking.receive(frame_of(answer(stream, b"x" * wire.MAX_DATA)))
    assert isinstance(got, Answered)
    assert isinstance(got.error, ResourceExhausted)


def test_an_answer_after_its_caller_gave_up_is_ignored():
    asking = Asking()
    stream, _ = asking.request("s", "m", b"")
    asking.forget(stream)
    got = asking.receive(frame_of(answer(stream, b"late")))
    assert got == Ignored("an answer on stream 1, which has no pending call")


def test_an_invalid_response_fails_only_its_call():
    asking = Asking()
    first, second = (asking.request("s", "m", b"")[0] for _ in range(2))
    got = asking.receive(Frame(first, wire.RESPONSE, 0, b"\xff\xff"))
    assert isinstance(got, Answered)
    assert str(got.error) == "the response is not a ttrpc Response"
    assert asking.receive(frame_of(answer(second, b"ok"))) == Answered(second, b"ok")


@pytest.mark.parametrize(
    ("code", "kind"),
    [(5, "NotFound"), (17, "Unknown"), (-1, "Unknown"), (2**31 - 1, "Unknown")],
    ids=["one of gRPC's", "none of them", "below zero", "huge"],
)
def test_codes_become_errors(code, kind):
    asking = Asking()
    stream, _ = asking.request("s", "m", b"")
    data = ttrpc_pb2.Response(status=ttrpc_pb2.Status(code=code, message="why")).SerializeToString()
    got = asking.receive(Frame(stream, wire.RESPONSE, 0, data))
    assert isinstance(got, Answered)
    assert (type(got.error).__name__, str(got.error)) == (kind, "why")


def test_an_error_travels_with_its_code_and_its_sentence():
    response = ttrpc_pb2.Response.FromString(frame_of(refuse(9, NotFound("no pod"))).data)
    assert (response.status.code, response.status.message, response.payload) == (5, "no pod", b"")


def test_a_sentence_that_no_text_can_hold_travels_anyway():
    response = ttrpc_pb2.Response.FromString(frame_of(refuse(1, Internal("\udcff" + "x" * 10_000))).data)
    assert response.status.message.startswith("\\udcff")
    assert len(response.status.message) < 5000


@given(st.lists(st.builds(Frame, st.integers(0, 9), st.integers(0, 4), st.integers(0, 7), st.binary(max_size=8))))
def test_for_any_frames_each_stream_has_one_request_and_ids_increase(frames):
    answering, numbers = Answering(), []
    for frame in frames:
        match answering.receive(frame):
            case Asked(stream=stream):
                numbers.append(stream)
            case Refused() | Ignored():
                pass
    assert numbers == sorted(set(numbers))
    assert all(number % 2 for number in numbers)


@given(st.lists(st.builds(Frame, st.integers(0, 9), st.integers(0, 4), st.integers(0, 7), st.binary(max_size=8))))
def test_for_any_frames_each_call_has_at_most_one_response(frames):
    asking = Asking()
    waiting = {asking.request("s", "m", b"")[0] for _ in range(3)}
    for frame in frames:
        if isinstance(got := asking.receive(frame), Answered):
            waiting.remove(got.stream)


def test_the_time_out_fits_its_field():
    assert sides.LONGEST * 1e9 < 2**63


def test_outside_a_call_there_is_no_deadline_and_no_metadata():
    assert current() == Call()
    assert current().traceparent == ""


async def test_a_call_is_visible_to_its_task_and_to_subtasks():
    async def inner():
        return current().traceparent

    async def handler():
        enter(Call(1.0, {"traceparent": ("00-a-b-01",)}))
        return await asyncio.create_task(inner())

    assert await asyncio.create_task(handler()) == "00-a-b-01"
    assert current() == Call()
