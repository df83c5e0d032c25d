"""Answers in protobuf: objects, lists, errors and watches that decode to what JSON says."""

import asyncio
import struct
from typing import Any

import pytest

from podwire.protocols.k8sapi import protobuf
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.protobuf_writer import encode, has_message
from podwire.protocols.k8sapi.protowire import SIZED, Fields, fill, single_text
from tests.apiserver.support import CONFIGS, DEFINITIONS, PODS, WIDGETS, answer_when

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
