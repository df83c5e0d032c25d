"""The byte vectors: what a real containerd and a Go plugin said, and every rule and message in bytes.

vectors/README.md tells how they are written; nothing here knows more about them than that page.
"""

import asyncio
import json
import re
import runpy
import socket
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.protobuf.unknown_fields import UnknownFieldSet

from podwire.protocols.grpc_status import RpcError
from podwire.protocols.nri import Event, methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import FIRST_EVENTS
from podwire.protocols.ttrpc import mux, ttrpc_pb2, wire
from podwire.protocols.ttrpc.sides import Answered, Answering, Asked, Asking, Ignored, Refused, answer, refuse
from podwire.transports.mux_connection import MuxConnection, Services, over_socket

VECTORS = Path(__file__).parent / "vectors"
METHODS = {(method.service, method.name): method for method in (*methods.RUNTIME, *methods.PLUGIN)}


def cases(name):
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def unpacked(parts):
    """`hex` and `hex*times`, in a row."""
    result = (part.partition("*") for part in parts)
    return b"".join(bytes.fromhex(text) * int(times or 1) for text, _, times in result)


def recording():
    """(direction, bytes) in the order in which they were said."""
    lines = (VECTORS / "containerd-2.3.4.txt").read_text(encoding="utf-8").splitlines()
    result = [line.split() for line in lines if not line.startswith("#")]
    return [(direction, bytes.fromhex(text)) for _, direction, text in result]


def side_of(direction):
    return b"".join(data for said, data in recording() if said == direction)


def frames_of(data, cut=1 << 20):
    """(conversation, frame) of one side's bytes, which come in chunks."""
    pieces, streams, found = mux.Pieces(), {}, []
    for start in range(0, len(data), cut):
        for conversation, piece in pieces.feed(data[start : start + cut]):
            frames = streams.setdefault(conversation, wire.Frames())
            found += [(conversation, frame) for frame in frames.feed(piece)]
    assert pieces.idle
    assert all(stream.idle for stream in streams.values())
    return found


def unknown_fields(message):
    """Removes all that is in the bytes and in no .proto, at any depth."""
    found = list(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            held = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        else:
            held = value if field.is_repeated else (value,)
        found += [field for inner in held for field in unknown_fields(inner)]
    return found


def exchanges():
    """(direction of the request, method, ttrpc Request, ttrpc Response) of the whole recording, in order."""
    waiting, found = {}, []
    for direction, data in recording():
        for conversation, frame in frames_of(data):
            if frame.kind == wire.REQUEST:
                waiting[conversation, frame.stream] = direction, ttrpc_pb2.Request.FromString(frame.data)
                continue
            said, request = waiting.pop((conversation, frame.stream))
            method = METHODS[request.service, request.method]
            found.append((said, method, request, ttrpc_pb2.Response.FromString(frame.data)))
    assert not waiting
    return found


# The recording.


def test_the_recording_is_a_pods_whole_life():
    assert [(said, method.name) for said, method, *_ in exchanges()] == [
        ("P>R", "RegisterPlugin"),
        *(
            ("R>P", name)
            for name in (
                "Configure",
                "Synchronize",
                "RunPodSandbox",
                "CreateContainer",
                "ValidateContainerAdjustment",
                "PostCreateContainer",
                "StartContainer",
                "PostStartContainer",
                "StopContainer",
                "RemoveContainer",
                "StopPodSandbox",
                "RemovePodSandbox",
            )
        ),
    ]


def test_nothing_in_the_recording_is_unknown():
    for _, method, request, response in exchanges():
        asked, answered = method.request.FromString(request.payload), method.response.FromString(response.payload)
        assert [unknown_fields(item) for item in (request, response, asked, answered)] == [[], [], [], []], method.name


def test_recorded_bytes_decode_to_the_expected_messages():
    document = {method.name: (method.request.FromString(q.payload), a) for _, method, q, a in exchanges()}
    configure, reply = document["Configure"]
    assert (configure.runtime_name, configure.NRI_version, configure.request_timeout) == ("containerd", "v0.12.0", 2000)
    assert pb.ConfigureResponse.FromString(reply.payload).events == (1 << 14) - 1
    adjust = pb.CreateContainerResponse.FromString(document["CreateContainer"][1].payload).adjust
    assert [item.key for item in adjust.env] == ["NRI=yes"]
    pod = document["RunPodSandbox"][0].pod
    assert (pod.name, pod.namespace, list(pod.ips)) == ("vector", "default", ["10.77.0.3"])
    [netns] = [namespace.path for namespace in pod.linux.namespaces if namespace.type == "network"]
    assert netns.startswith("/var/run/netns/cni-")


@pytest.mark.parametrize("direction", ["P>R", "R>P"])
@pytest.mark.parametrize("cut", [1, 7, 4096, 1 << 20])
def test_the_recording_is_encoded_to_the_same_bytes_again(direction, cut):
    data = side_of(direction)
    again = b"".join(
        mux.pieces(conversation, wire.encode(frame.stream, frame.kind, frame.data, frame.flags))
        for conversation, frame in frames_of(data, cut)
    )
    assert again == data


def test_messages_of_the_recording_are_encoded_to_the_same_bytes_again():
    """But for the order of maps, which Go shuffles: the same fields, and as many bytes."""
    for _, method, request, response in exchanges():
        for kind, payload in ((method.request, request.payload), (method.response, response.payload)):
            message = kind.FromString(payload)
            again = message.SerializeToString(deterministic=True)
            assert sorted(again) == sorted(payload), method.name
            assert kind.FromString(again) == message, method.name


def test_our_own_caller_and_answerer_make_the_recorded_frames():
    asking = {"P>R": Asking(), "R>P": Asking()}
    for said, method, request, response in exchanges():
        metadata = [(item.key, item.value) for item in request.metadata]
        timeout = request.timeout_nano / 1e9
        stream, frame = asking[said].request(
            method.service, method.name, request.payload, timeout=timeout, metadata=metadata
        )
        back = "R>P" if said == "P>R" else "P>R"
        # Nanoseconds of a float are not those that Go counted, so that field is held against itself.
        ours = ttrpc_pb2.Request.FromString(frame[wire.HEADER.size :])
        assert abs(ours.timeout_nano - request.timeout_nano) < 1000
        ours.timeout_nano = request.timeout_nano
        assert wire.encode(stream, wire.REQUEST, ours.SerializeToString()) in side_of(said)
        assert answer(stream, response.payload) in side_of(back)


def answers_as_recorded(service):
    """A handler for each recorded call of a service, and what was asked of them in order."""
    seen = []

    def handler(method, payload):
        async def answer_it(request):
            seen.append((method.name, request))
            return method.response.FromString(payload)

        return answer_it

    return seen, {m.name: handler(m, r.payload) for _, m, _, r in exchanges() if m.service == service}


async def replayed(connection, said, expected):
    """Say one side of the recording to a connection, and read until it has said the other."""
    near, far = socket.socketpair()
    await over_socket(near, connection)
    reader, writer = await asyncio.open_unix_connection(sock=far)
    writer.write(side_of(said))
    data = await reader.readexactly(expected)
    await connection.close()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    return data


async def test_the_recorded_runtime_meets_our_plugin():
    seen, handlers = answers_as_recorded(methods.PLUGIN_SERVICE)
    connection = MuxConnection(
        Services(methods.PLUGIN, handlers), asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE
    )
    wanted = [item for item in frames_of(side_of("P>R")) if item[0] == mux.PLUGIN_SERVICE]
    length = sum(mux.HEADER.size + wire.HEADER.size + len(frame.data) for _, frame in wanted)
    data = await replayed(connection, "R>P", length)
    assert sorted(frames_of(data), key=lambda each: each[1].stream) == wanted
    assert [(name, request) for name, request in seen] == [
        (m.name, m.request.FromString(q.payload)) for said, m, q, _ in exchanges() if said == "R>P"
    ]


async def test_the_recorded_plugin_meets_our_runtime():
    seen, handlers = answers_as_recorded(methods.RUNTIME_SERVICE)
    connection = MuxConnection(
        Services(methods.RUNTIME, handlers), asks_on=mux.PLUGIN_SERVICE, answers_on=mux.RUNTIME_SERVICE
    )
    wanted = [item for item in frames_of(side_of("R>P")) if item[0] == mux.RUNTIME_SERVICE]
    length = sum(mux.HEADER.size + wire.HEADER.size + len(frame.data) for _, frame in wanted)
    data = await replayed(connection, "P>R", length)
    assert frames_of(data) == wanted
    assert [name for name, _ in seen] == ["RegisterPlugin"]
    assert (seen[0][1].plugin_name, seen[0][1].plugin_idx) == ("nri-logger", "10")


# The rules of framing.


def meant(result):
    match result:
        case Asked():
            pairs = [[key, value] for key, values in result.metadata.items() for value in values]
            return "asked", {
                "stream": result.stream,
                "service": result.service,
                "method": result.method,
                "payload": result.payload,
                "timeout_nano": round((result.timeout or 0) * 1e9),
                "metadata": pairs,
            }
        case Refused(stream, error):
            return "refused", {"stream": stream, "code": error.code}
        case Answered(stream, payload, error):
            code, message = (error.code, str(error)) if error else (0, "")
            return "answered", {"stream": stream, "payload": payload, "code": code, "message": message}
        case Ignored():
            return "ignored", {}


def received(case, cut):
    """Events that a side reads from the bytes of a case, in chunks."""
    data, answering, asking = unpacked(case["bytes"]), Answering(), Asking()
    for _ in range(case.get("awaited", 0)):
        asking.request("s", "m", b"")
    mine = mux.PLUGIN_SERVICE if case["side"] == "answering" else mux.RUNTIME_SERVICE
    side = answering if case["side"] == "answering" else asking
    pieces, frames = mux.Pieces(), wire.Frames()
    for start in range(0, len(data), cut):
        for conversation, piece in pieces.feed(data[start : start + cut]):
            if conversation == mine:
                yield from (side.receive(frame) for frame in frames.feed(piece))


@pytest.mark.parametrize("case", cases("framing.json"), ids=lambda each: each["name"])
@pytest.mark.parametrize("cut", [5, 65536, 1 << 30], ids=["in shreds", "in chunks", "at once"])
def test_each_side_decodes_the_vectors(case, cut):
    if cut == 5 and len(unpacked(case["bytes"])) > 100_000:
        cut = 1000
    results, closed = [], False
    try:
        results.extend(received(case, cut))  # what came before a BadMux stays
    except mux.BadMux:
        closed = True
    assert closed == case.get("closes", False)
    wanted = [
        (kind, dict(reported) if kind != "ignored" else {}) for mean in case["means"] for kind, reported in mean.items()
    ]
    found = [meant(result) for result in results]
    assert [kind for kind, _ in found] == [kind for kind, _ in wanted]
    for (_, ours), (kind, theirs) in zip(found, wanted, strict=True):
        if kind == "ignored":
            continue
        if "payload" in theirs:
            assert ours.pop("payload") == unpacked([theirs.pop("payload")])
        assert {key: ours[key] for key in theirs} == theirs


# Messages and calls.


@pytest.mark.parametrize("case", cases("messages.json"), ids=lambda each: each["message"])
def test_a_message_is_its_bytes_and_its_bytes_are_the_message(case):
    kind, data = getattr(pb, case["message"]), bytes.fromhex(case["hex"])
    message = json_format.ParseDict(case["decoded"], kind())
    assert kind.FromString(data) == message
    assert message.SerializeToString(deterministic=True) == data
    assert not unknown_fields(kind.FromString(data))


def test_there_is_a_vector_for_every_message_with_every_field_in_it():
    document = {
        case["message"]: getattr(pb, case["message"]).FromString(bytes.fromhex(case["hex"]))
        for case in cases("messages.json")
    }
    wanted = {
        name: {field.name for field in descriptor.fields}
        for name, descriptor in pb.DESCRIPTOR.message_types_by_name.items()
    }
    assert {name: {field.name for field, _ in message.ListFields()} for name, message in document.items()} == wanted


@pytest.mark.parametrize("case", cases("calls.json"), ids=lambda each: each["method"])
def test_a_call_is_asked_and_answered_in_the_bytes_of_the_vector(case):
    method = METHODS[case["service"], case["method"]]
    [(conversation, request)] = frames_of(bytes.fromhex(case["request"]["hex"]))
    [(back, response)] = frames_of(bytes.fromhex(case["response"]["hex"]))
    assert conversation == back == case["conversation"]
    asked = Answering().receive(request)
    assert (asked.stream, asked.service, asked.method) == (case["stream"], case["service"], case["method"])
    assert asked.timeout == case["timeout_nano"] / 1e9
    assert [[key, *values] for key, values in asked.metadata.items()] == case["metadata"]
    assert method.request.FromString(asked.payload) == json_format.ParseDict(
        case["request"]["decoded"], method.request()
    )
    asking = Asking()
    asking._awaited.add(response.stream)
    answered = asking.receive(response)
    assert answered.error is None
    assert method.response.FromString(answered.payload) == json_format.ParseDict(
        case["response"]["decoded"], method.response()
    )


def test_there_is_a_vector_for_every_call():
    assert [(case["service"], case["method"]) for case in cases("calls.json")] == list(METHODS)


def test_the_vectors_equal_the_generators_output():
    made = runpy.run_path(str(VECTORS / "make.py"))
    assert made["messages"]() == cases("messages.json")
    assert made["calls"]() == cases("calls.json")


async def test_a_plugin_answers_every_rejected_vector_and_continues():
    """Those cases that a peer is to see, over a socket: one reply for each request or refusal, with its code."""

    async def shutdown(_):
        return pb.Empty()

    for case in cases("framing.json"):
        if case["side"] != "answering" or case.get("closes"):
            continue
        near, far = socket.socketpair()
        services = Services(methods.PLUGIN, {"Shutdown": shutdown})
        connection = MuxConnection(services, asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE)
        await over_socket(near, connection)
        reader, writer = await asyncio.open_unix_connection(sock=far)
        writer.write(unpacked(case["bytes"]))
        wanted = sorted((s, c) for mean in case["means"] for s, c in reply_to(mean))
        got = sorted([await read_reply(reader) for _ in wanted])
        assert got == wanted, case["name"]
        await connection.close()
        writer.close()
        await writer.wait_closed()


def reply_to(means):
    [(kind, reported)] = means.items()
    if kind == "refused":
        yield reported["stream"], reported["code"]
    elif kind == "asked":
        known = reported["service"] == methods.PLUGIN_SERVICE and reported["method"] == "Shutdown"
        readable = not reported["payload"]  # letters are no message
        yield reported["stream"], (0 if readable else 3) if known else 12


async def read_reply(reader):
    conversation, length = mux.HEADER.unpack(await reader.readexactly(mux.HEADER.size))
    assert conversation == mux.PLUGIN_SERVICE
    [frame] = wire.Frames().feed(await reader.readexactly(length))
    assert frame.kind == wire.RESPONSE
    return frame.stream, ttrpc_pb2.Response.FromString(frame.data).status.code


def test_errors_of_every_code_come_back_as_themselves():
    for kind in RpcError.__subclasses__():
        asking = Asking()
        stream, _ = asking.request("s", "m", b"")
        [frame] = wire.Frames().feed(refuse(stream, kind("why")))
        answered = asking.receive(frame)
        assert type(answered.error) is kind
        assert str(answered.error) == "why"


def test_the_bytes_on_the_page_about_the_protocol_are_those_of_the_recording():
    page = (Path(__file__).parents[3] / "docs" / "nri-protocol.md").read_text(encoding="utf-8")
    shown = page.split("in which a plugin registers:\n\n```text\n")[1].split("```")[0]
    asked, answered = (
        bytes.fromhex("".join(re.split(r"  +", line.strip())[0] for line in part.splitlines()))
        for part in shown.strip().split("\n\n")
    )
    assert asked == recording()[0][1]
    assert recording()[1][1].startswith(answered)


def test_the_page_about_the_protocol_names_every_event_and_how_it_travelled():
    page = (Path(__file__).parents[3] / "docs" / "nri-protocol.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (0\.\d+) \| (yes|) ?\|", page, re.MULTILINE)
    assert rows == [
        (f"{item}", item.title, "0.2" if item.bit & FIRST_EVENTS else "0.10", "yes" if item.was_state_change else "")
        for item in Event
    ]
