"""Large bodies do not hold up other requests, and what is too much is refused before it is built."""

import asyncio
import sys
from typing import Self

import msgspec
import pytest

from podwire.apiserver.request import offload
from podwire.apiserver.request.context import RequestContext
from podwire.protocols.k8sapi import codec
from podwire.protocols.k8sapi.server_side import Request
from tests.apiserver.abuse.support import ADMIN
from tests.apiserver.abuse.test_bombs import JSON, MAPS, PODS, PROTOBUF, YAML, enveloped, repeated, sized
from tests.eventually import eventually_async

CONTAINERS = 4_000
STRICT = {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "restricted"}}}
COMPILERS = ("/podwire/kinds/", "/podwire/protocols/cel/")
ENOUGH = 10
"""Requests that are answered while a large one is worked on; without a worker it is one or two."""


def entries(number: int) -> bytes:
    return b"".join(sized(2, sized(1, b"k%d" % entry) + sized(2, b"v")) for entry in range(number))


def maps(number: int, key: str = "k") -> bytes:
    return msgspec.json.encode({"metadata": {"name": "x"}, "data": {f"{key}{entry}": "v" for entry in range(number)}})


LARGE = [
    pytest.param(MAPS, YAML, repeated(b"- a\n", b"x:\n"), id="yaml scalars"),
    pytest.param(MAPS, YAML, b"data:\n" + b"".join(b"  k%d: v\n" % entry for entry in range(90_000)), id="yaml keys"),
    pytest.param(MAPS, PROTOBUF, enveloped(entries(90_000)), id="protobuf entries"),
    pytest.param(MAPS, PROTOBUF, enveloped(repeated(b"\x78\x00")), id="unknown protobuf fields"),
    pytest.param(MAPS, JSON, maps(90_000, "-/"), id="invalid keys"),
    pytest.param(PODS, JSON, b'{"spec":{"containers":[%s]}}' % b",".join([b"{}"] * 49_000), id="containers"),
]


@pytest.mark.parametrize(("path", "media", "body"), LARGE)
def test_other_requests_are_answered_while_a_large_one_is_decoded_and_validated(house, path, media, body):
    answered = house.run(answered_meanwhile(house, "POST", path, media, body))
    assert answered >= ENOUGH


def test_other_requests_are_answered_while_a_large_object_is_patched(house):
    house.made(MAPS, maps(30_000))
    patch = b'{"data":{"another":"value"}}'
    assert house.run(answered_meanwhile(house, "PATCH", f"{MAPS}/x", "application/merge-patch+json", patch)) >= ENOUGH


async def answered_meanwhile(house, method: str, path: str, media: str, body: bytes) -> int:
    """How many requests for the version are answered before the large one is."""

    async def read(_limit: int) -> bytes:
        return body

    handle = house.assembled.server.handle
    large = Request(method=method, path=path, headers={"content-type": media}, certificate=ADMIN, read=read)
    task, answered = asyncio.create_task(handle(large)), 0
    while not task.done():
        await handle(Request(method="GET", path="/version", certificate=ADMIN))
        answered += 1
        await asyncio.sleep(0.001)
    assert (await task).status in (200, 201, 400, 413, 422)
    return answered


class CountedCalls:
    """Counts the calls that the event loop's thread makes, those that compile, and the steps that are handed to the
    worker."""

    def __init__(self, monkeypatch) -> None:
        self.on_loop = self.compiling = self.offloaded = 0
        submit = offload._WORKER.submit

        def counted(*args):
            self.offloaded += 1
            return submit(*args)

        monkeypatch.setattr(offload._WORKER, "submit", counted)

    def _count(self, frame, event, _argument) -> None:
        if event == "call":
            self.on_loop += 1
            self.compiling += any(part in frame.f_code.co_filename for part in COMPILERS)

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)


def test_the_event_loop_does_nothing_for_each_container_of_a_large_pod(house, monkeypatch):
    """Token mounts, pod security, warnings: one call for each container would show in the number of calls."""
    house.ask("PATCH", "/api/v1/namespaces/default", STRICT, media="application/merge-patch+json")
    containers = [{"name": f"c{number}", "image": "i"} for number in range(CONTAINERS)]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": containers}}

    with CountedCalls(monkeypatch) as calls:
        house.ask("POST", PODS, pod)

    assert calls.on_loop < CONTAINERS
    assert calls.offloaded > 5


def test_a_large_object_is_deleted_by_the_worker(house, monkeypatch):
    house.made(MAPS, maps(3_000))
    with CountedCalls(monkeypatch) as calls:
        house.ask("DELETE", f"{MAPS}/x")
    assert calls.offloaded == 2, "decoded twice: as it was, and as it is marked"


ENTRIES = 30_000
"""Of a large object that is read; one call of Python for each would show in the number of calls."""


@pytest.mark.parametrize("media", [PROTOBUF, "application/cbor"])
@pytest.mark.parametrize(
    ("path", "query"),
    [
        pytest.param(f"{MAPS}/x", {}, id="get"),
        pytest.param(MAPS, {}, id="list"),
        pytest.param(MAPS, {"watch": "1", "resourceVersion": "0", "timeoutSeconds": "1"}, id="watch"),
    ],
)
def test_a_large_object_is_written_in_protobuf_and_cbor_by_the_worker(house, monkeypatch, path, query, media):
    house.made(MAPS, maps(ENTRIES))
    with CountedCalls(monkeypatch) as calls:
        reply = house.ask("GET", path, query=query, accept=media)
    assert reply.status == 200
    assert calls.offloaded == 1
    assert calls.on_loop < ENTRIES


PARTS = 2_000
"""Of each large object: validations, properties, rules, webhooks."""


def policy() -> dict:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    validations = [{"expression": f"object.metadata.name != 'n{number}'"} for number in range(PARTS)]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": validations}
    return {"metadata": {"name": "large"}, "spec": spec}


def definition(schema: dict) -> dict:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "larges", "singular": "large", "kind": "Large", "listKind": "LargeList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "larges.example.com"}, "spec": spec}


def properties() -> dict:
    spec = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(PARTS)}}
    return definition({"type": "object", "properties": {"spec": spec}})


def rules() -> dict:
    spec = {"type": "integer", "x-kubernetes-validations": [{"rule": f"self != {number}"} for number in range(PARTS)]}
    return definition({"type": "object", "properties": {"spec": spec}})


def role() -> dict:
    rules = [{"apiGroups": [""], "resources": [f"r{number}"], "verbs": ["get"]} for number in range(PARTS)]
    return {"metadata": {"name": "large"}, "rules": rules}


def webhooks() -> dict:
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}
    webhook = {
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://localhost:1/"}, "failurePolicy": "Ignore",
        "matchConditions": [{"name": "c", "expression": "true"}], "rules": [rule], "sideEffects": "None",
    }  # fmt: skip
    return {"metadata": {"name": "large"}, "webhooks": [{"name": f"w{n}.example.com", **webhook} for n in range(1_000)]}


def serves(server) -> bool:
    return server.engine.registry.find("example.com", "v1", "larges") is not None


ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COMPILED = [
    pytest.param(
        f"{ADMISSION}/validatingadmissionpolicies", policy, lambda server: server.policies._policies.known, id="policy"
    ),
    pytest.param(DEFINITIONS, properties, serves, id="properties of a definition"),
    pytest.param(DEFINITIONS, rules, serves, id="rules of a definition"),
    pytest.param(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        role,
        lambda server: "/registry/clusterroles/large" in server.roles._roles._rules,
        id="role",
    ),
    pytest.param(
        f"{ADMISSION}/validatingwebhookconfigurations",
        webhooks,
        lambda server: server.webhooks.validating.active,
        id="webhooks",
    ),
]


@pytest.mark.parametrize(("path", "body", "takes_effect"), COMPILED)
def test_a_large_object_is_compiled_by_the_worker_once_it_is_stored(house, monkeypatch, path, body, takes_effect):
    server = house.assembled

    async def wait() -> None:
        await eventually_async(lambda: takes_effect(server))

    with CountedCalls(monkeypatch) as calls:
        house.made(path, body())
        house.run(wait())

    assert calls.compiling < PARTS / 2


def test_an_object_that_is_too_large_with_its_defaults_is_refused_before_it_is_validated(house):
    reply = house.refused("POST", PODS, b'{"spec":{"containers":[%s]}}' % b",".join([b"{}"] * 40_000))

    assert reply.status == 413
    assert "bytes after defaulting, the limit is 1500000" in reply.message


def test_an_object_that_is_too_large_and_has_few_parts_is_validated(house):
    """The annotation of `kubectl apply` on a large definition: users know this error."""
    definition = msgspec.json.encode({f"name-{number}": {"type": "string"} for number in range(40_000)}).decode()
    reply = house.refused("POST", MAPS, {"metadata": {"name": "x", "annotations": {"applied": definition}}})

    assert (reply.status, reply.fields) == (422, ["metadata.annotations"])


def test_an_update_that_is_too_large_is_refused_before_it_is_validated(house):
    house.made(MAPS, maps(1))
    keys = {f"-/{'k' * 20}{number}": "v" for number in range(60_000)}

    reply = house.refused("PUT", f"{MAPS}/x", msgspec.json.encode({"metadata": {"name": "x"}, "data": keys}))

    assert reply.status == 413


def test_a_small_request_of_the_same_task_is_small_again(house):
    async def both() -> tuple[bool, bool]:
        with RequestContext() as first:
            offload.note_size(offload.LARGE + 1)
        with RequestContext() as second:
            offload.note_size(offload.LARGE)
        return first.large, second.large

    assert house.run(both()) == (True, False)


def test_threads_are_switched_as_usual_after_a_large_request(house):
    usual = sys.getswitchinterval()
    house.refused("POST", MAPS, maps(20_000, "-/"))
    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize(
    ("media", "body"),
    [
        pytest.param(JSON, maps(codec.MOST_MEMBERS + 1), id="json"),
        pytest.param(PROTOBUF, enveloped(entries(codec.MOST_MEMBERS + 1)), id="protobuf"),
    ],
)
def test_a_body_with_too_many_members_is_refused(house, media, body):
    reply = house.refused("POST", MAPS, body, media=media)
    assert (reply.status, reply.message) == (400, "the body has more than 100000 members")


def test_marks_within_strings_are_not_counted():
    text = "{[:" * codec.MOST_MEMBERS
    assert codec.decode_json(msgspec.json.encode({"a": text, "b": "\\"})).value == {"a": text, "b": "\\"}
