"""Small bodies that would become large, and large ones that would take long: refused in bounded time and memory."""

import time
import tracemalloc

import msgspec
import pytest

from podwire.protocols.k8sapi.codec import MOST_CONTAINERS

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MEBIBYTE = 1024 * 1024
LARGEST = 3 * MEBIBYTE
SECONDS = 6.0
"""Generous: these take tenths on an idle machine, and minutes where a limit is missing."""

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def sized(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def enveloped(content: bytes) -> bytes:
    return b"k8s\x00" + sized(1, sized(1, b"v1") + sized(2, b"ConfigMap")) + sized(2, content)


def nested(levels: int) -> bytes:
    """A message in a message, as deep as that."""
    content = b""
    for _ in range(levels):
        content = sized(1, content)
    return content


def doubling(levels: int) -> bytes:
    """Nine aliases of nine aliases of …: a billion laughs."""
    first = b'a0: &a0 ["lol","lol","lol","lol","lol","lol","lol","lol","lol"]\n'
    more = (
        b"a%d: &a%d [%s]\n" % (number, number, b",".join([b"*a%d" % (number - 1)] * 9)) for number in range(1, levels)
    )
    return first + b"".join(more)


def repeated(part: bytes, before: bytes = b"", after: bytes = b"", size: int = LARGEST - 100) -> bytes:
    return before + part * ((size - len(before) - len(after)) // len(part)) + after


BOMBS = [
    pytest.param(JSON, b"[" * LARGEST, id="json: brackets"),
    pytest.param(JSON, repeated(b'{"a":'), id="json: objects in objects"),
    pytest.param(JSON, repeated(b"{},", b'{"x":[', b"{}]}"), id="json: a million objects"),
    pytest.param(JSON, repeated(b"[],", b'{"x":[', b"[]]}"), id="json: a million lists"),
    pytest.param(YAML, doubling(9), id="yaml: nine to the power of nine"),
    pytest.param(YAML, b"a: &a [*a, *a]", id="yaml: a list that holds itself"),
    pytest.param(YAML, b"a: &a\n  b: *a", id="yaml: a mapping that holds itself"),
    pytest.param(YAML, b"[" * LARGEST, id="yaml: brackets"),
    pytest.param(YAML, repeated(b"- "), id="yaml: lists in lists"),
    pytest.param(YAML, repeated(b"[],", b"x: [", b"[]]"), id="yaml: a million lists"),
    pytest.param(YAML, repeated(b"- a\n"), id="yaml: a million scalars"),
    pytest.param(YAML, repeated(b"---\n"), id="yaml: a million documents"),
    pytest.param(YAML, b"a: &a {x: 1}\nb: [" + repeated(b"*a,", size=300_000) + b"*a]", id="yaml: an alias, often"),
    pytest.param(YAML, b"a: !!python/object/apply:os.system [id]", id="yaml: a command"),
    pytest.param(YAML, b"a: " + b"9" * 100_000, id="yaml: a long number"),
    pytest.param(PROTOBUF, b"", id="protobuf: nothing"),
    pytest.param(PROTOBUF, b"k8s\x01" + sized(1, b""), id="protobuf: another magic"),
    pytest.param(PROTOBUF, b"k8s\x00\x0a\xff\xff\xff\xff\x07", id="protobuf: two gigabytes announced"),
    pytest.param(PROTOBUF, b"k8s\x00\x0a" + b"\xff" * 11, id="protobuf: a length without end"),
    pytest.param(PROTOBUF, b"k8s\x00" + b"\x0b" * 10_000, id="protobuf: groups in groups"),
    pytest.param(PROTOBUF, b"k8s\x00\x02\x00", id="protobuf: field number 0"),
    pytest.param(PROTOBUF, enveloped(b"\x0a\x05ab"), id="protobuf: a field longer than its message"),
    pytest.param(PROTOBUF, enveloped(sized(1, sized(1, b"\xff"))), id="protobuf: no UTF-8"),
    pytest.param(PROTOBUF, enveloped(nested(10_000)), id="protobuf: messages in messages"),
    pytest.param(PROTOBUF, enveloped(sized(1, repeated(b"\x6a\x00"))), id="protobuf: a million owners"),
    pytest.param(PROTOBUF, b"k8s\x00" + sized(1, sized(1, b"v9") + sized(2, b"No")), id="protobuf: no such kind"),
    pytest.param(PROTOBUF, b"k8s\x00" + sized(3, b"gzip"), id="protobuf: packed inside"),
]


@pytest.mark.parametrize(("media", "body"), BOMBS)
def test_a_bomb_does_not_go_off(house, media, body):
    began = time.process_time()
    reply = house.refused("POST", MAPS, body, media=media)
    assert reply.status in (400, 422), reply.raw[:300]
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(("media", "body"), [BOMBS[4], BOMBS[12], BOMBS[17]])
def test_a_bomb_takes_little_memory(house, media, body):
    tracemalloc.start()
    try:
        house.refused("POST", MAPS, body, media=media)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200 * MEBIBYTE + 20 * len(body)


@pytest.mark.parametrize(
    ("media", "code"), [("application/apply-patch+yaml", 400), ("application/apply-patch+cbor", 400)]
)
def test_an_alias_bomb_as_an_apply_patch_does_not_go_off(house, media, code):
    house.made(MAPS, {"metadata": {"name": "there"}})
    query = {"fieldManager": "m"}
    assert house.refused("PATCH", f"{MAPS}/there", doubling(9), media=media, query=query).status == code


@pytest.mark.parametrize(
    ("containers", "status", "reason"),
    [(5_000, 422, "Invalid"), (MOST_CONTAINERS - 10, 413, "RequestEntityTooLarge")],
)
def test_the_allowed_number_of_parts_is_refused_in_time(house, containers, status, reason):
    """The dearest parts there are: every one is defaulted, admitted and found wrong in several ways."""
    body = b'{"metadata":{"name":"x"},"spec":{"containers":[%s]}}' % b",".join([b"{}"] * containers)
    began = time.process_time()
    reply = house.refused("POST", PODS, body)
    assert (reply.status, reply.body["reason"]) == (status, reason)
    assert time.process_time() - began < SECONDS
    assert len(reply.raw) < 100_000


LARGE = [
    pytest.param({"labels": {f"-{number}": "" for number in range(90_000)}}, "metadata.labels", id="many bad labels"),
    pytest.param({"labels": {"-" * 65_536: ""}}, "metadata.labels", id="a label key of 64 KiB"),
    pytest.param({"labels": {"a": "-" * 1_000_000}}, "metadata.labels", id="a label of a megabyte"),
    pytest.param(
        {"annotations": {"a": "x" * 2_900_000}}, "metadata.annotations", id="an annotation of three megabytes"
    ),
    pytest.param({"annotations": {"x" * 65_536: ""}}, "metadata.annotations", id="an annotation key of 64 KiB"),
    pytest.param({"finalizers": ["x"] * 100_000}, "metadata.finalizers", id="a hundred thousand finalizers"),
    pytest.param({"finalizers": ["a/" + "x" * 1_000_000]}, "metadata.finalizers", id="a finalizer of a megabyte"),
    pytest.param({"ownerReferences": [{}] * 10_000}, "metadata.ownerReferences", id="ten thousand owners"),
    pytest.param({"name": "x" * 2_900_000}, "metadata.name", id="a name of three megabytes"),
    pytest.param(
        {"name": None, "generateName": "-" * 2_900_000}, "metadata.generateName", id="to generate from: megabytes"
    ),
]


@pytest.mark.parametrize(("metadata", "field"), LARGE)
def test_metadata_beyond_measure_is_invalid_at_its_field(house, metadata, field):
    began = time.process_time()
    reply = house.refused("POST", MAPS, {"metadata": {"name": "x", **metadata}})
    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert any(item.startswith(field) for item in reply.fields), reply.fields[:5]
    assert time.process_time() - began < SECONDS
    assert len(reply.raw) < 300_000


def test_a_service_of_thousands_of_node_ports_is_refused_when_they_run_out(house):
    ports = [{"name": f"p{number}", "port": number + 1} for number in range(10_000)]
    body = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}
    began = time.process_time()
    reply = house.refused("POST", "/api/v1/namespaces/default/services", body)
    assert (reply.status, reply.fields) == (422, ["spec.ports[2768].nodePort"])
    assert time.process_time() - began < SECONDS


def doubled(times: int) -> list[dict[str, str]]:
    """Each copy doubles what is there."""
    first = {"op": "add", "path": "/data/k", "value": "x" * 1000}
    copies = [{"op": "copy", "from": "/data", "path": f"/data/c{number}"} for number in range(times)]
    return [first, *copies]


PATCHES = [
    pytest.param([{"op": "test", "path": "/data/k", "value": "v"}] * 10_001, 413, id="ten thousand and one operations"),
    pytest.param(doubled(40), 413, id="copies that double"),
    pytest.param([{"op": "add", "path": "/data" + "/x" * 200, "value": 1}], 422, id="a deep pointer"),
    pytest.param([{"op": "add", "path": "/" + "x" * 1_000_000 + "/y", "value": 1}], 422, id="a long pointer"),
    pytest.param([{"op": "copy", "from": "", "path": "/data/again"}] * 1000, None, id="the whole into itself"),
    pytest.param(
        [{"op": "add", "path": "/metadata/finalizers/-", "value": "x"}] * 10_000, None, id="ten thousand additions"
    ),
]


@pytest.mark.parametrize(("patch", "code"), PATCHES)
def test_a_patch_that_multiplies_is_stopped(house, patch, code):
    house.made(MAPS, {"metadata": {"name": "there", "finalizers": ["a/b"]}, "data": {"k": "v"}})
    began = time.process_time()
    reply = house.refused("PATCH", f"{MAPS}/there", patch, media="application/json-patch+json")
    assert reply.status == code if code else reply.status in (400, 413, 422)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("media", ["application/merge-patch+json", "application/strategic-merge-patch+json"])
def test_a_merge_patch_of_many_levels_or_members_is_stopped(house, media):
    house.made(MAPS, {"metadata": {"name": "there"}, "data": {"k": "v"}})
    deep = b'{"data":' * 5000 + b"1" + b"}" * 5000
    wide = msgspec.json.encode({"metadata": {"labels": {f"-{number}": "" for number in range(90_000)}}})
    for body, code in ((deep, 400), (wide, 422)):
        assert house.refused("PATCH", f"{MAPS}/there", body, media=media).status == code


@pytest.mark.parametrize("watch", [{}, {"watch": "1"}], ids=["list", "watch"])
@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"labelSelector": "x" * 1_000_000}, id="a megabyte"),
        pytest.param(
            {"labelSelector": ",".join(f"a{number}=b" for number in range(20_000))}, id="twenty thousand labels"
        ),
        pytest.param({"labelSelector": "!" * 60_000}, id="not not not"),
        pytest.param({"labelSelector": "(" * 60_000}, id="parentheses"),
        pytest.param({"labelSelector": "a=" + "a-" * 30_000}, id="a value that nearly matches"),
        pytest.param({"labelSelector": "a" * 60_000 + "!/b"}, id="a key that nearly matches"),
        pytest.param({"labelSelector": "a" + " " * 60_000 + "!"}, id="blanks"),
        pytest.param({"labelSelector": "a>" + "9" * 5000}, id="a long number"),
        pytest.param({"fieldSelector": "x" * 1_000_000}, id="a megabyte for a field"),
        pytest.param({"fieldSelector": ",".join(["metadata.name=a"] * 3_000)}, id="three thousand fields"),
        pytest.param({"fieldSelector": "metadata.name=" + "\\" * 59_999}, id="backslashes"),
        pytest.param({"fieldSelector": "metadata.name"}, id="no operator"),
        pytest.param({"fieldSelector": "spec.secret=x"}, id="an unknown field"),
        pytest.param({"fieldSelector": "data.key=x"}, id="a field that is there but cannot be selected"),
        pytest.param({"fieldSelector": "metadata.labels.a=x"}, id="a label as a field"),
    ],
)
def test_a_selector_beyond_measure_is_a_bad_request(house, query, watch):
    began = time.process_time()
    assert house.refused("GET", MAPS, query={**query, **watch}).status == 400
    assert time.process_time() - began < SECONDS
