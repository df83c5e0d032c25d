"""Records as spans: which trace, which parent, whose service; and the bytes that carry them, read field by field."""

import struct
from pathlib import Path

import msgspec
import pytest

from podwire.trace.otlp import encoded, rejected
from podwire.trace.otlp_endpoint import BadEndpoint, endpoint, shown
from podwire.trace.pod_trace import assigned
from podwire.trace.record import decode
from podwire.trace.span_assembly import Assembler, Limits
from podwire.trace.spans import Event, Span, root_id, span_id, spans

UID = "3bba3e288f2d47ce8c5bf9d5d263d9fc"
MOST = 200
LIMITS = Limits()


@pytest.fixture
def reported(records) -> list[Span]:
    return spans(assigned(records))


def named(reported, service, name) -> Span:
    return next(item for item in reported if (item.service, item.name) == (service, name))


def test_the_uid_of_the_pod_is_the_trace_and_its_start_is_the_root(reported, trace):
    assert {item.trace for item in reported} == {UID}
    [root] = [item for item in reported if not item.parent]
    assert (root.service, root.name, root.id) == ("podwire", "pod default/web", root_id(UID))
    assert root.end - root.begin == pytest.approx(trace.took)
    assert ("k8s.pod.uid", "3bba3e28-8f2d-47ce-8c5b-f9d5d263d9fc") in root.attributes
    assert [event.name for event in root.events] == [
        "ADDED default/web (Pending) → Scheduler",
        "ADDED default/web (Pending, on n1) → Kubelet",
    ]


@pytest.mark.parametrize(
    ("service", "name", "parent"),
    [
        pytest.param("etcd", "create pods", ("APIServer", "POST pods"), id="a write inside its request"),
        pytest.param("etcd", "update pods", ("APIServer", "POST pods/binding"), id="the first update is the binding's"),
        pytest.param(
            "CNIPlugin", "ADD bridge", ("ContainerRuntime", "RunPodSandbox"), id="a plugin inside the sandbox"
        ),
        pytest.param("ContainerRuntime", "crun run", ("ContainerRuntime", "StartContainer"), id="a process"),
    ],
)
def test_a_nested_call_is_a_child_span(service, name, parent, reported):
    assert named(reported, service, name).parent == named(reported, *parent).id


def test_other_calls_are_children_of_the_root(reported):
    for name in ("RunPodSandbox", "CreateContainer"):
        assert named(reported, "ContainerRuntime", name).parent == root_id(UID)


def test_every_parent_exists_and_spans_have_no_cycles(reported):
    known = {item.id: item for item in reported}
    assert len(known) == len(reported)
    for entry in reported:
        seen, at = {entry.id}, entry
        while at.parent:
            at = known[at.parent]
            assert at.id not in seen
            seen.add(at.id)


def test_attributes_have_caller_method_and_outcome(reported):
    span = named(reported, "APIServer", "POST pods")
    values = dict(span.attributes)
    assert values["podwire.caller"] == "KubeCtl"
    assert (values["http.request.method"], values["http.response.status_code"]) == ("POST", 201)
    assert values["url.path"] == "/api/v1/namespaces/default/pods"
    missing = named(reported, "APIServer", "GET pods")
    assert missing.error == "404 Not Found"


def test_the_same_call_always_has_the_same_span_id(records):
    assert spans(records) == spans(list(records))
    assert span_id("a") == span_id("a") != span_id("b")


def test_the_life_of_a_pod_that_was_recorded_for_real_is_one_tree():
    lines = (Path(__file__).parent / "data" / "life.jsonl").read_bytes().splitlines()
    result = spans(assigned(map(decode, lines)))
    known = {item.id for item in result}
    assert {item.parent for item in result} - known == {""}
    assert named(result, "IPAM", "ADD host-local").parent == named(result, "CNIPlugin", "ADD bridge").id
    assert named(result, "CNIPlugin", "DEL bridge").parent == named(result, "ContainerRuntime", "StopPodSandbox").id


# As they come.


def fed(assembler: Assembler, records, now: float = 0.0) -> None:
    for record in records:
        assembler.learn([record], now)


def test_incremental_spans_equal_those_of_the_whole_trace(records):
    assembler = Assembler()
    fed(assembler, assigned(records))
    found = assembler.due(LIMITS.linger)
    whole = spans(assigned(records))
    assert sorted(item.id for item in found) == sorted(item.id for item in whole)
    assert {item.id: item.parent for item in found} == {item.id: item.parent for item in whole}
    assert assembler.due(LIMITS.linger) == []


def test_a_span_is_emitted_a_moment_after_its_call(records):
    assembler = Assembler()
    assert assembler.next() is None
    fed(assembler, records)
    assert assembler.next() == LIMITS.linger
    assert assembler.due(LIMITS.linger / 2) == []
    assert assembler.due(LIMITS.linger) != []
    assert assembler.next() is None


def test_a_request_is_the_start_although_its_pod_is_known_only_at_its_end(records):
    assembler = Assembler()
    fed(assembler, records)
    root = named(assembler.due(LIMITS.linger), "podwire", "pod default/web")
    assert root.begin == next(record.time for record in records if record.method.startswith("POST "))


def test_the_root_of_a_pod_that_does_not_run_is_emitted_after_silence(records):
    assembler = Assembler()
    fed(assembler, records[:15])
    assert [item for item in assembler.due(LIMITS.linger) if not item.parent] == []
    assert assembler.next() == LIMITS.silence
    [root] = assembler.due(LIMITS.silence)
    assert root.error == "not Running yet"


def test_the_root_of_a_running_pod_is_emitted_once(records):
    assembler = Assembler()
    fed(assembler, records)
    later = msgspec.structs.replace(records[-1], seq=99, id="APIServer-1.z", outcome="")
    fed(assembler, [later], LIMITS.linger / 2)
    assert len([item for item in assembler.due(LIMITS.linger) if not item.parent]) == 1
    fed(assembler, [later], LIMITS.linger)
    assert [item for item in assembler.due(LIMITS.silence * 9) if not item.parent] == []


def test_the_assembler_is_bounded(records):
    assembler = Assembler(Limits(most=MOST))
    begun = records[14]
    for number in range(MOST + 10):
        assembler.learn([msgspec.structs.replace(begun, id=f"K-1.{number:x}", seq=number, pod=f"{number:032x}")], 0.0)
    assert assembler.forgotten == 10
    assert len(assembler._starts) <= MOST
    assembler.due(LIMITS.silence)
    fed(assembler, records)
    assembler.due(LIMITS.linger + LIMITS.silence)
    assembler.due(LIMITS.linger + LIMITS.silence + LIMITS.kept)
    assert len(assembler._calls) <= MOST


# The bytes.


def fields(data: bytes) -> list[tuple[int, int, object]]:
    """A protobuf message as (number, wire type, value), read by the rules of the format alone."""
    found, place = [], 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while place < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        value: object
        if kind == 0:
            value = varint()
        elif kind == 1:
            value = struct.unpack_from("<Q", data, place)[0]
            place += 8
        else:
            assert kind == 2
            size = varint()
            value = data[place : place + size]
            place += size
        found.append((number, kind, value))
    return found


def only(data: bytes, number: int):
    [value] = [value for found, _, value in fields(data) if found == number]
    return value


def attributes(data: bytes, number: int) -> dict[str, object]:
    found = {}
    for item in [value for which, _, value in fields(data) if which == number]:
        value = only(item, 2)
        [(kind, _, reported)] = fields(value)
        assert kind in (1, 3)  # string_value, int_value
        found[only(item, 1).decode()] = reported.decode() if kind == 1 else reported
    return found


def test_bytes_are_those_of_the_published_messages():
    span = Span(
        trace=UID, id="00f067aa0ba902b7", parent="0102030405060708", service="etcd", node="n1", name="create pods",
        begin=1_800_000_000.5, end=1_800_000_001.25, attributes=(("a", "b"), ("n", 201)), error="why",
        events=(Event(1_800_000_000.75, "sent"),), dropped_events=3,
    )  # fmt: skip
    resource_spans = only(encoded([span]), 1)
    resource, scope_spans = only(resource_spans, 1), only(resource_spans, 2)
    assert attributes(resource, 1) == {"service.name": "etcd", "service.namespace": "podwire", "k8s.node.name": "n1"}
    assert only(only(scope_spans, 1), 1) == b"podwire.trace"
    result = only(scope_spans, 2)
    assert only(result, 1) == bytes.fromhex(UID)
    assert only(result, 2) == bytes.fromhex("00f067aa0ba902b7")
    assert only(result, 4) == bytes.fromhex("0102030405060708")
    assert only(result, 5) == b"create pods"
    assert only(result, 6) == 2, "SPAN_KIND_SERVER"
    kinds = {number: kind for number, kind, _ in fields(result)}
    assert (kinds[7], kinds[8]) == (1, 1), "times are fixed64"
    assert only(result, 7) == 1_800_000_000_500_000_000
    assert only(result, 8) == 1_800_000_001_250_000_000
    assert attributes(result, 9) == {"a": "b", "n": 201}
    assert (only(only(result, 11), 1), only(only(result, 11), 2)) == (1_800_000_000_750_000_000, b"sent")
    assert only(result, 12) == 3
    status = only(result, 15)
    assert (only(status, 2), only(status, 3)) == (b"why", 2), "STATUS_CODE_ERROR"


def test_a_root_span_has_no_parent_and_is_internal(records):
    root, *_ = spans(records)
    result = only(only(only(encoded([root]), 1), 2), 2)
    assert 4 not in {number for number, _, _ in fields(result)}
    assert only(result, 6) == 1, "SPAN_KIND_INTERNAL"


def test_each_service_is_a_resource_of_its_own(reported):
    found = [value for number, _, value in fields(encoded(reported)) if number == 1]
    names = [attributes(only(item, 1), 1)["service.name"] for item in found]
    assert sorted(names) == sorted({item.service for item in reported})


def test_invalid_unicode_is_sent_escaped():
    span = Span(trace=UID, id="0" * 16, service="x", name="half \ud800", begin=0.0, end=0.0)
    assert only(only(only(only(encoded([span]), 1), 2), 2), 5) == b"half \\ud800"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"", (0, "")),
        (b"\x0a\x07\x08\x03\x12\x03why", (3, "why")),
        (b"<html>no", (0, "")),
        (b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", (0, "")),
    ],
    ids=["nothing", "three and why", "something else", "fewer than none"],
)
def test_rejected_spans_are_read_from_the_reply(answer, found):
    assert rejected(answer) == found


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://user:pass@host/otlp/v1/traces?x=1#y", "https://user:pass@host/otlp/v1/traces?x=1"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
    ],
)
def test_where_spans_are_posted_to(url, found):
    assert endpoint(url) == found


@pytest.mark.parametrize(
    "url", ["", "collector:4317", "grpc://x", "http://", "http://x:99999", "http://[::1", "http://a b", "http://a\nb"]
)
def test_an_invalid_collector_url_is_refused(url):
    with pytest.raises(BadEndpoint):
        endpoint(url)


def test_a_password_in_a_url_is_not_shown():
    assert shown("https://user:pass@host:1/v1/traces?token=x") == "https://host:1/v1/traces"
