"""Valid objects broken at random, and objects made at random from their schemas: whatever is sent, the answer is an
object or a Status; what is refused leaves no trace; what is stored can be read, listed, tabled, watched and deleted."""

import copy
import os
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podwire.kinds.schema.definitions import Schema, load
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
PER_KIND = 150 if SOAK else 8
SHARED = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.differing_executors)
"""A server is shared by all examples on purpose: what one leaves behind is part of the next one's world."""

DEFINITIONS = load()
TEXTS = ["", "a", "x" * 300, "A b", "\u00e9", "\U0001f600", "\x00", "*", "/", "..", "../x", "a/b", "a/b/c", "a.b.c",
         "example.com/x", "0", "-1", "9" * 5000, "9" * 5000 + "%", "50%", "10.0.0.1", "fe80::1%eth0", "10.0.0.0/8",
         "10.0.0.0/" + "9" * 5000, "1Gi", "1" * 400 + "Gi", "true", "TCP", "Always", "None", "ClusterIP", "NodePort",
         "In", "Exists", "(a+)+$", "@every 1s", "* * * * *", "2024-01-01T00:00:00Z", "IPv4", "v1", "YQ=="]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 80, 65536, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 0.5, 1e300, 5e-324]
DEEP: Any = "end"
for _ in range(60):
    DEEP = [DEEP]
ODD: list[Any] = [
    None,
    True,
    False,
    [],
    {},
    [None],
    [[]],
    {"": None},
    {"a": {"b": []}},
    [{}] * 50,
    DEEP,
    *TEXTS,
    *NUMBERS,
]


class Maker:
    """Values as a schema wants them, but for what it does not say; and objects with something broken in them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.density = self.random.choice([0.05, 0.15, 0.35])

    def odd(self) -> Any:
        return copy.deepcopy(self.random.choice(ODD))  # what is put into an object may be broken further

    def of(self, definition: str, depth: int = 0) -> Any:
        pick, short = self.random.choice, definition.rpartition(".")[2]
        if short in ("Quantity", "IntOrString"):
            return pick([*TEXTS, *NUMBERS])
        if short in ("Time", "MicroTime"):
            return pick(["2024-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999Z", None])
        if short in ("RawExtension", "JSON", "FieldsV1", "Patch"):
            return self.odd()
        if short.startswith("JSONSchemaPropsOr"):
            return pick([True, False, {}, {"type": "string"}])
        return self._object(DEFINITIONS.schema(definition), depth)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        chance = self.density * 0.8**depth
        return {
            name: self._value(each, depth + 1)
            for name, each in (schema.properties or {}).items()
            if self.random.random() < (0.9 if name in schema.required and depth < 12 else chance)
        }

    def _value(self, schema: Schema, depth: int) -> Any:
        pick = self.random.choice
        if self.random.random() < 0.04:
            return self.odd()
        if schema.ref:
            return self.of(schema.target, depth)
        if schema.items is not None:
            return [self._value(schema.items, depth) for _ in range(pick([0, 1, 1, 2]))]
        if schema.values is not None:
            return {pick(TEXTS): self._value(schema.values, depth) for _ in range(pick([0, 1, 2]))}
        return {"string": lambda: pick(TEXTS), "integer": lambda: pick(NUMBERS[:11]), "number": lambda: pick(NUMBERS),
                "boolean": lambda: pick([True, False])}.get(schema.json_type, self.odd)()  # fmt: skip

    def broken(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The object with one to three things wrong."""
        obj = copy.deepcopy(obj)
        for _ in range(self.random.choice([1, 1, 2, 3])):
            everywhere = list(_places(obj))
            places = [item for item in everywhere if item[1] not in ("name", "apiVersion", "kind", "metadata")]
            if not places or self.random.random() < 0.1:
                places = everywhere
            if not places:
                break
            holder, key = self.random.choice(places)
            how = self.random.random()
            if how < 0.6:
                holder[key] = self.odd()
            elif how < 0.8 and isinstance(holder, dict):
                del holder[key]
            elif isinstance(holder, dict):
                holder[self.random.choice(TEXTS)] = self.odd()
            else:
                holder.append(self.odd())
        return obj


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def encoded(obj: Any, maker: Maker) -> bytes:
    """As JSON, now and then with a key given twice."""
    data = msgspec.json.encode(obj)
    return data.replace(b"{", b'{"metadata":7,', 1) if maker.random.random() < 0.05 else data


def attempt(house: Any, maker: Maker, kind: Kind, obj: dict[str, Any]) -> None:
    """Send an object, check the answer; what was stored is looked at from all sides, changed and deleted."""
    collection = kind.target(namespace="default").path()
    settled = house.settle if kind.resource == "customresourcedefinitions" else lambda: None  # it writes on its own
    settled()
    before = house.state()
    reply = house.ask(
        "POST", collection, encoded(obj, maker), query={"fieldValidation": maker.random.choice(["", "Strict"])}
    )
    if reply.status != 201:
        judged(house, reply, before)
        return
    name = reply.body["metadata"]["name"]
    settled()
    house.readable(collection, name)
    one = f"{collection}/{name}"
    assert house.ask("PUT", one, house.ask("GET", one).body).status == 200
    change(house, maker, kind, one)
    house.ask("DELETE", one, {"gracePeriodSeconds": 0})
    house.ask("PATCH", one, {"metadata": {"finalizers": None}}, media="application/merge-patch+json")


def change(house: Any, maker: Maker, kind: Kind, one: str) -> None:
    """Changes through every door of an object."""
    known = house.ask("GET", one).body
    doors = [
        "",
        *(
            f"/{subresource.name}"
            for subresource in kind.subresources
            if "update" in subresource.verbs and subresource.name != "proxy"
        ),
    ]
    for door in doors:
        before = house.state()
        reply = house.ask("PUT", one + door, maker.broken(known))
        if reply.status not in (200, 201):
            judged(house, reply, before)
    media = maker.random.choice(["application/merge-patch+json", "application/strategic-merge-patch+json"])
    before = house.state()
    reply = house.ask(
        "PATCH", one, maker.of(DEFINITIONS.name_of(kind.group, kind.version, kind.kind) or ""), media=media
    )
    if reply.status != 200:
        judged(house, reply, before)
    shown = house.ask("GET", one, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    assert shown.status in (200, 404), shown.raw[:500]


def judged(house: Any, reply: Any, before: Any) -> None:
    assert 400 <= reply.status < 500, reply.raw[:1000]
    assert reply.body["kind"] == "Status"
    assert reply.body["message"]
    assert house.state() == before, reply.raw[:500]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=PER_KIND, suppress_health_check=SHARED)
def test_a_broken_object_is_refused_without_a_trace_or_stored_and_seen(shared_house, samples, kind, seed):
    maker = Maker(seed)
    attempt(shared_house, maker, kind, maker.broken(samples(kind)))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=PER_KIND, suppress_health_check=SHARED)
def test_a_random_object_is_refused_without_a_trace_or_stored_and_seen(shared_house, samples, kind, seed):
    maker = Maker(seed)
    obj = maker.of(DEFINITIONS.name_of(kind.group, kind.version, kind.kind) or "")
    metadata = {"name": "random", "labels": maker.random.choice([{"a": "b"}, {}, None])}
    attempt(shared_house, maker, kind, {**obj, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata})


REVIEWED = [item for item in BUILTIN.all if item.verbs == ("create",) and item.resource != "bindings"]


@pytest.mark.parametrize("kind", REVIEWED, ids=lambda each: each.resource)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=PER_KIND, suppress_health_check=SHARED)
def test_a_random_review_is_answered_or_refused(shared_house, kind, seed):
    maker = Maker(seed)
    before = shared_house.state()
    obj = maker.of(DEFINITIONS.name_of(kind.group, kind.version, kind.kind) or "")
    reply = shared_house.ask("POST", kind.target(namespace="default").path(), {**obj, "metadata": {}})
    assert reply.status in (201, 400, 422), reply.raw[:500]
    assert shared_house.state() == before


WORDS = ["api", "apis", "v1", "apps", "namespaces", "default", "pods", "configmaps", "nodes", "sample", "status",
         "scale", "log", "proxy", "watch", "", ".", "..", "%2e", "%2f", "%00", "%ff", "%", ";", "a" * 300, "\u00e9",
         "openapi", "v2", "v3", "healthz", "livez", "version", ".well-known", "events.k8s.io", "x.com"]  # fmt: skip
OPTIONS = ["watch", "limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch",
           "timeoutSeconds", "dryRun", "fieldManager", "fieldValidation", "force", "pretty", "includeObject",
           "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "sendInitialEvents", "allowWatchBookmarks",
           "exclude", "verbose", "hash", "timeout", "x"]  # fmt: skip
HEADERS = ["accept", "content_type", "content_encoding", "authorization", "impersonate_user", "impersonate_group",
           "impersonate_uid", "impersonate_extra_x", "if_none_match", "accept_encoding", "x_request_id"]  # fmt: skip
VALUES = ["", "0", "1", "-1", "true", "x", "All", "application/json", "application/yaml", "*/*", "gzip", "Bearer x",
          "Basic eDp5", "system:masters", "9" * 400, "a=b", "a in (b)", "\x7f", ",;=", "metadata.name=sample",
          "application/json;as=Table;g=meta.k8s.io;v=v1"]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "NONSENSE"]
BODIES = [b"", b"{}", b"[]", b"null", b"{", b'{"metadata":{"name":"sample"}}', b"\xff", b"k8s\x00", b"a: b"]

requests = st.fixed_dictionaries(
    {
        "method": st.sampled_from(METHODS),
        "path": st.lists(st.sampled_from(WORDS), max_size=9).map(lambda words: "/" + "/".join(words)),
        "body": st.sampled_from(BODIES),
        "query": st.dictionaries(st.sampled_from(OPTIONS), st.sampled_from(VALUES), max_size=3),
        "headers": st.dictionaries(st.sampled_from(HEADERS), st.sampled_from(VALUES), max_size=3),
        "known": st.booleans(),
    }
)


@given(asked=requests)
@settings(max_examples=5000 if SOAK else 250, suppress_health_check=SHARED)
def test_every_request_is_answered(shared_house, asked):
    """A future revision may time out, a kubelet cannot be reached: nothing else is the server's fault."""
    how = {**asked["headers"], "media": asked["headers"].get("content_type", "application/json")}
    how.pop("content_type", None)
    if "watch" in asked["query"]:
        asked["query"]["timeoutSeconds"] = "x"
    reply = shared_house.ask(asked["method"], asked["path"], asked["body"], query=asked["query"], **how)
    assert reply.status < 500 or reply.status in (503, 504), reply.raw[:500]
    if reply.status >= 400 and reply.content_type == "application/json":
        assert reply.body["kind"] == "Status"
        assert reply.body["code"] == reply.status
