"""Answers in protobuf and CBOR: objects, lists, errors and watches that decode to what JSON says."""

import asyncio
import struct
from typing import Any

import cbor2
import pytest

from podwire.apiserver.request.encodings import ListNames, ProtobufItems
from podwire.protocols.k8sapi import cbor, protobuf
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.protobuf_writer import encode, has_message, sized
from podwire.protocols.k8sapi.protowire import SIZED, Fields, fill, single_text
from podwire.protocols.storage import Item
from tests.apiserver.support import CONFIGS, DEFINITIONS, JSON, META, PODS, WIDGETS, answer_when

PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize("kind", BUILTIN.all, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_every_built_in_kind_has_a_protobuf_form(kind):
    assert has_message(kind.api_version, kind.kind)


async def test_an_object_decodes_to_what_json_says(api, pod):
    probe = {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 3}
    container = {
        "name": "c", "image": "busybox:1.36", "livenessProbe": probe, "resources": {"limits": {"cpu": "100m"}},
        "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k"}}}],
        "ports": [{"containerPort": 80, "name": "web"}],
    }  # fmt: skip
    volumes = [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x"}}]
    made = await api.post(PODS, pod(containers=[container], volumes=volumes, nodeSelector={"a": "b"}))
    assert made.status == 201, made.raw

    reply = await api.get(f"{PODS}/web", accept=PROTOBUF)

    assert reply.headers["content-type"] == PROTOBUF
    assert protobuf.decode(reply.raw) == made.body


async def test_a_definition_with_values_of_several_types_decodes_to_what_json_says(api, definition):
    crd = definition()
    properties = {
        "any": {"type": "object", "additionalProperties": {"type": "string"}, "default": {"a": "b"}},
        "open": {"type": "object", "additionalProperties": True},
        "list": {"type": "array", "items": {"type": "integer", "minimum": 0.5}, "x-kubernetes-list-type": "set"},
    }
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", "properties": properties}
    made = await api.made(DEFINITIONS, crd)

    assert protobuf.decode(encode(made)) == made


async def test_a_list_and_a_write_are_answered_in_protobuf(api, config):
    made = await api.call("POST", CONFIGS, config(a="1"), accept=PROTOBUF)
    assert protobuf.decode(made.raw)["data"] == {"a": "1"}

    listed = await api.get(CONFIGS, accept=PROTOBUF)

    assert listed.headers["content-type"] == PROTOBUF
    assert b"ConfigMapList" in listed.raw
    assert b"one" in listed.raw


async def test_an_error_is_a_status_in_protobuf(api):
    reply = await api.get(f"{CONFIGS}/none", accept=PROTOBUF)

    assert reply.status == 404
    assert protobuf.decode(reply.raw)["message"] == 'configmaps "none" not found'


async def test_json_is_preferred_and_custom_resources_have_nothing_else(api, definition):
    both = await api.get(CONFIGS, accept=f"{PROTOBUF},application/json")
    assert both.headers["content-type"] == "application/json"
    await api.made(DEFINITIONS, definition())
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)

    assert (await api.get(WIDGETS, accept=PROTOBUF)).status == 406


async def test_a_watch_sends_frames_behind_their_lengths(api, config):
    stream = await api.ask("GET", f"{CONFIGS}?watch=true&resourceVersion=0", accept=PROTOBUF)
    assert stream.content_type == f"{PROTOBUF};stream=watch"
    await api.post(CONFIGS, config(a="1"))

    async with asyncio.timeout(10):
        chunk = await anext(stream.chunks)
    await stream.chunks.aclose()

    (length,) = struct.unpack(">I", chunk[:4])
    event = _decoded(chunk[4 : 4 + length])
    assert event["type"] == "ADDED"
    assert protobuf.decode(event["raw"])["data"] == {"a": "1"}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_metadata_alone_is_answered_in_protobuf(api, config, definition, version):
    await api.post(CONFIGS, config(a="1"))
    one = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v={version}"
    many = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v={version}"

    single = await api.get(f"{CONFIGS}/one", accept=one)
    listed = await api.get(CONFIGS, accept=many)

    assert (single.headers["content-type"], listed.headers["content-type"]) == (PROTOBUF, PROTOBUF)
    shown = (await api.get(f"{CONFIGS}/one")).body["metadata"]
    assert _metadata(_envelope(single.raw, version, "PartialObjectMetadata")) == shown
    items = _parts(_envelope(listed.raw, version, "PartialObjectMetadataList"))[2 if version == "v1" else 1]
    assert _metadata(items) == shown

    await api.made(DEFINITIONS, definition())
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    assert (await api.get(WIDGETS, accept=many)).headers["content-type"] == PROTOBUF


async def test_a_watch_of_metadata_sends_frames_of_metadata(api, config):
    accept = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    stream = await api.ask("GET", f"{CONFIGS}?watch=true&resourceVersion=0", accept=accept)
    await api.post(CONFIGS, config(a="1"))

    async with asyncio.timeout(10):
        chunk = await anext(stream.chunks)
    await stream.chunks.aclose()

    (length,) = struct.unpack(">I", chunk[:4])
    event = _decoded(chunk[4 : 4 + length])
    assert event["type"] == "ADDED"
    assert _metadata(_envelope(event["raw"], "v1", "PartialObjectMetadata"))["name"] == "one"


async def test_a_table_has_no_protobuf_form(api):
    accept = f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1"

    assert (await api.get(CONFIGS, accept=accept)).status == 406
    assert (await api.get(CONFIGS, accept=f"{accept},{PROTOBUF}")).headers["content-type"] == PROTOBUF


def _parts(message: bytes) -> dict[int, bytes]:
    """The sized fields of a message by number; of a repeated one the last."""

    def keep(number: int) -> Any:
        def put(out: dict[int, bytes], buffer: bytes, start: int, stop: int, _levels: int) -> None:
            out[number] = buffer[start:stop]

        return put

    parts: dict[int, bytes] = {}
    fill(
        parts,
        Fields("Any", *((number, SIZED, str(number), keep(number)) for number in (1, 2))),
        message,
        0,
        len(message),
        9,
    )
    return parts


def _envelope(body: bytes, version: str, kind: str) -> bytes:
    """The content of a body, whose type is as expected."""
    whole = _parts(body.removeprefix(protobuf.MAGIC))
    assert _parts(whole[1]) == {1: f"meta.k8s.io/{version}".encode(), 2: kind.encode()}
    return whole[2]


def _metadata(partial: bytes) -> dict[str, Any]:
    """The metadata of an object, read as that of a ConfigMap."""
    type_meta = sized(1, b"v1") + sized(2, b"ConfigMap")
    whole = protobuf.MAGIC + sized(1, type_meta) + sized(2, sized(1, _parts(partial)[1]))
    metadata: dict[str, Any] = protobuf.decode(whole)["metadata"]
    return metadata


def _decoded(frame: bytes) -> dict[str, Any]:
    event: dict[str, Any] = {}

    def raw(out: dict[str, Any], buffer: bytes, start: int, stop: int, _levels: int) -> None:
        out["object"] = buffer[start:stop]

    fields = Fields("WatchEvent", (1, SIZED, "type", single_text("type", keep=True)), (2, SIZED, "object", raw))
    fill(event, fields, frame, 0, len(frame), 10)
    inner: dict[str, Any] = {}
    fill(inner, Fields("RawExtension", (1, SIZED, "raw", raw)), event["object"], 0, len(event["object"]), 10)
    event["raw"] = inner["object"]
    return event


CBOR = "application/cbor"


async def test_cbor_is_read_and_answered(api, config):
    secrets = "/api/v1/namespaces/default/secrets"
    body = cbor.SELF_DESCRIBED + cbor2.dumps({"metadata": {"name": "one"}, "data": {"a": cbor2.CBORTag(22, b"\xff\0")}})
    made = await api.call("POST", secrets, body, content_type=CBOR, accept=CBOR)

    assert (made.status, made.headers["content-type"]) == (201, CBOR)
    assert made.raw.startswith(cbor.SELF_DESCRIBED)
    shown = (await api.get(f"{secrets}/one")).body
    assert (cbor.decode(made.raw), shown["data"]) == (shown, {"a": "/wA="})
    for accept, content_type in (
        (f"{CBOR},application/json", CBOR),
        (f"application/json;q=0.9,{CBOR}", CBOR),
        (f"application/json,{CBOR};q=0.9", "application/json"),
        (f"{PROTOBUF},{CBOR}", CBOR),
        ("*/*", "application/json"),
    ):
        assert (await api.get(f"{secrets}/one", accept=accept)).headers["content-type"] == content_type


async def test_lists_tables_metadata_and_errors_are_answered_in_cbor(api, config):
    for number in range(130):
        await api.made(CONFIGS, config(f"c{number}", a="x" * 20_000 if number % 2 else ""))
    for accept in (CBOR, f"{CBOR};as=Table;{META}", f"{CBOR};as=PartialObjectMetadataList;{META}"):
        listed = await api.get(CONFIGS, accept=accept)
        assert listed.headers["content-type"] == CBOR
        assert cbor.decode(listed.raw) == (await api.get(CONFIGS, accept=accept.replace(CBOR, JSON))).body

    missing = await api.get(f"{CONFIGS}/none", accept=CBOR)

    assert (missing.status, cbor.decode(missing.raw)["reason"]) == (404, "NotFound")
    assert (await api.get("/version", accept=CBOR)).headers["content-type"] == JSON


async def test_a_watch_is_a_sequence_of_cbor_items(api, config):
    stream = await api.ask("GET", f"{CONFIGS}?watch=true&resourceVersion=0&allowWatchBookmarks=true", accept=CBOR)
    assert stream.content_type == "application/cbor-seq"
    await api.post(CONFIGS, config(a="1"))

    async with asyncio.timeout(10):
        chunk = await anext(stream.chunks)
    await stream.chunks.aclose()

    event = cbor.decode(chunk)
    assert (event["type"], event["object"]["data"]) == ("ADDED", {"a": "1"})


async def test_custom_resources_and_apply_speak_cbor(widgets):
    body = cbor.encode({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {}})
    apply = "application/apply-patch+cbor"
    url = f"{WIDGETS}/one?fieldManager=me"

    applied = await widgets.call("PATCH", url, body, content_type=apply, accept=CBOR)

    assert (applied.status, cbor.decode(applied.raw)["metadata"]["managedFields"][0]["operation"]) == (201, "Apply")
    assert (await widgets.call("PATCH", url, b"\xff", content_type=apply)).status == 400
    assert (
        await widgets.call("DELETE", f"{WIDGETS}/one", cbor.encode({"kind": "DeleteOptions"}), content_type=CBOR)
    ).status == 200


async def test_a_bad_cbor_body_is_refused(api):
    reply = await api.post(CONFIGS, b"\xa2\x41a\x01\x41a\x02", content_type=CBOR)

    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    assert "Duplicate map key" in reply.message


async def test_a_protobuf_list_follows_its_objects(api, config):
    """Items are kept by revision."""
    for number in range(3):
        await api.made(CONFIGS, config(f"c{number}", a=str(number)))
    first = await api.get(CONFIGS, accept=PROTOBUF)
    assert (await api.get(CONFIGS, accept=PROTOBUF)).raw == first.raw
    await api.patch(f"{CONFIGS}/c1", {"data": {"a": "changed"}})
    changed = await api.get(CONFIGS, accept=PROTOBUF)
    assert b"changed" in changed.raw
    assert len(changed.raw) > len(first.raw)


async def test_kept_items_are_bounded():
    kept = ProtobufItems(limit=100)
    names = ListNames("v1", "ConfigMap", "ConfigMapList")
    rendered = []

    def render(item):
        rendered.append(item.key)
        return b'{"metadata":{"name":"%b"}}' % (b"n" * 40)

    for _ in range(2):
        for key in "abab":
            await kept.find(names, Item(key, b"", 1, 1), render)
    assert rendered == ["a", "b"]
    await kept.find(names, Item("c", b"", 1, 1), render)
    await kept.find(names, Item("a", b"", 1, 1), render)
    assert rendered == ["a", "b", "c", "a"]
