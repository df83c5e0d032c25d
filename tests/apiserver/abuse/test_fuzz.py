"""Requests made at random for every kind and a custom one: methods, paths, queries, headers, media, bodies, users.

None may cause an internal error, and none may leave the server unable to answer the next. Most of a request is as it
should be, so that the rest gets far; a third of them is wild. Requests go to the server's own entry point, without a
socket: 100 for each kind, 10,000 in `make soak` (PODWIRE_REQUESTS sets another number).

A failure names its seed: `REPRODUCE=kind:seed` runs that request alone.
"""

import os
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import yaml

from podwire.apiserver import Settings
from podwire.apiserver.limits import Limits
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind, Subresource
from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.abuse.samples import STORED, sample
from tests.apiserver.abuse.support import ADMIN, JSON, PARTIAL, TABLE, House, Reply
from tests.apiserver.abuse.test_mutations import DEFINITIONS, ODD, TEXTS, Maker
from tests.eventually import eventually
from tests.protocols.k8sapi.protobuf_writer import encoded

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_SEED", "1"))
CUSTOM = Kind(
    group="fuzz.example.com",
    version="v1",
    resource="widgets",
    kind="Widget",
    subresources=tuple(Subresource(name, ("get", "patch", "update")) for name in ("status", "scale")),
)
KINDS = sorted((*BUILTIN.all, CUSTOM), key=lambda kind: kind.group == "admissionregistration.k8s.io")
"""Kinds of admission last: their objects apply to the requests for all others."""
PER_KIND = int(os.environ.get("PODWIRE_REQUESTS", "10000" if SOAK else "100"))
STREAM_SECONDS = 0.005
"""Watches are read for so long."""

PROTOBUF = "application/vnd.kubernetes.protobuf"
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "POST", "PATCH", "PUT"]
ODD_METHODS = [*METHODS, "HEAD", "OPTIONS", "TRACE", "get", "X" * 100]
USERS = [
    ADMIN,
    ADMIN,
    ADMIN,
    Certificate("jane"),
    Certificate("system:node:n1", ("system:nodes",)),
    Certificate(""),
    None,
]
BODIES = [JSON, JSON, "application/yaml", PROTOBUF]
PATCHES = [
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
]
ODD_MEDIA = ["application/apply-patch+cbor", "text/plain", "*/*", "", "application/json;charset=utf-8;x=y"]
MEDIA = [*BODIES, *PATCHES, *ODD_MEDIA]
ACCEPT = [
    JSON,
    TABLE,
    PARTIAL,
    "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Nothing",
    "*/*;q=0",
    ",,,;;;",
    "",
]
OPTIONS: Mapping[str, list[str]] = {
    "watch": ["1", "true", "0", "maybe"],
    "timeoutSeconds": ["1", "0", "-1", "9" * 30],
    "limit": ["1", "0", "-1", "9" * 30, "x"],
    "continue": ["x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8ifQ", "\x00"],
    "resourceVersion": ["0", "1", "99999999", "-1", "x", "9" * 30],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "x"],
    "sendInitialEvents": ["true", "false", "x"],
    "allowWatchBookmarks": ["true", "x"],
    "labelSelector": ["a=b", "a in (b,c)", "!a", "a in (", "=", "a>1", "\x00", "a" * 500],
    "fieldSelector": ["metadata.name=sample", "spec.x=y", "metadata.name!=a,metadata.namespace=b", "=", "\\", "a=b=c"],
    "dryRun": ["All", "None", ""],
    "fieldManager": ["m", "x" * 200, "\n", ""],
    "fieldValidation": ["Strict", "Warn", "Ignore", "x"],
    "force": ["true", "x"],
    "pretty": ["true", "x"],
    "propagationPolicy": ["Foreground", "Orphan", "Background", "x"],
    "gracePeriodSeconds": ["0", "-1", "9" * 30, "x"],
    "orphanDependents": ["true", "x"],
    "includeObject": ["Object", "None", "x"],
    "timeout": ["1s", "x"],
    "container": ["c", "../x"],
    "command": ["sh"],
    "path": ["../../etc/passwd"],
    "tailLines": ["-1", "x", "9" * 30],
}


def custom_definition() -> dict[str, Any]:
    """A definition of custom resources with what a schema can have: rules, formats, unions, a scale."""
    count = {"type": "integer", "minimum": 0, "maximum": 9, "default": 1}
    size = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    names = {"type": "array", "items": {"type": "string", "pattern": "^[a-z]*$"}, "x-kubernetes-list-type": "set"}
    parts = {"type": "object", "additionalProperties": {"type": "string", "format": "date-time"}, "maxProperties": 3}
    rule = {"rule": "self.count <= size(self.names) + 9", "message": "too many"}
    spec = {
        "type": "object",
        "properties": {"count": count, "size": size, "names": names, "parts": parts, "next": {"type": "object"}},
        "required": ["count", "names"],
        "x-kubernetes-validations": [rule],
    }
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": anything}}
    scale = {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"}
    version = {"name": CUSTOM.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": f"{CUSTOM.resource}.{CUSTOM.group}"},
        "spec": {
            "group": CUSTOM.group,
            "scope": "Namespaced",
            "names": {"plural": CUSTOM.resource, "kind": CUSTOM.kind},
            "versions": [{**version, "subresources": {"status": {}, "scale": scale}}],
        },
    }


def is_stored(kind: Kind) -> bool:
    return kind in STORED or kind is CUSTOM


def valid_object(kind: Kind) -> dict[str, Any]:
    """A small valid object of a kind that is stored."""
    spec = {"count": 2, "size": "1", "names": ["a"], "parts": {"a": "2024-01-01T00:00:00Z"}}
    return sample(kind) | ({"spec": spec} if kind is CUSTOM else {})


class Fuzzer(Maker):
    """Requests to one kind."""

    def __init__(self, kind: Kind, seed: int) -> None:
        super().__init__(seed)
        self.kind = kind
        self.wild = self.random.random() < 0.35
        known = valid_object(kind)["metadata"]["name"]
        self.name = known if self.random.random() < 0.6 else f"other-{self.random.randrange(5)}"

    def method(self) -> str:
        return self.random.choice(ODD_METHODS if self.wild else METHODS)

    def media(self, method: str) -> str:
        if self.wild:
            return self.random.choice(MEDIA)
        return self.random.choice(PATCHES if method == "PATCH" else BODIES)

    def user(self) -> Certificate | None:
        return self.random.choice(USERS) if self.wild else ADMIN

    def path(self, method: str) -> str:
        pick, kind = self.random.choice, self.kind
        collection = kind.target(namespace="default").path()
        if self.wild:
            return self._wild_path()
        if (method == "POST" and self.random.random() < 0.9) or (method in ("GET", "DELETE") and pick([0, 0, 1])):
            return collection
        parts = [part.name for part in kind.subresources]
        part = f"/{pick(parts)}" if parts and self.random.random() < 0.25 else ""
        return f"{collection}/{self.name}{part}"

    def _wild_path(self) -> str:
        pick, kind = self.random.choice, self.kind
        name = pick(["sample", "", "", "absent", pick(["..", "%2e%2e", "a%2fb", "%00", "x" * 300, "ü"])])
        namespace = pick(["default", "default", "default", "absent", "kube-system", "..", ""])
        parts = [part.name for part in kind.subresources]
        part = pick([*parts, "status", "scale", "nothing", "proxy/a/b", "exec"]) if self.random.random() < 0.3 else ""
        path = kind.target(namespace=namespace).path() + (f"/{name}" if name else "")
        path += f"/{part}" if part and name else ""
        if self.random.random() < 0.1:
            path = path.replace("/", pick(["//", "/./", "/../"]), 1) + pick(["/", "?", ";x", ""])
        return path

    def query(self) -> dict[str, str | list[str]]:
        pick = self.random.choice
        names = self.random.sample(sorted(OPTIONS), pick([0, 0, 0, 1, 2]) + self.wild)
        query: dict[str, str | list[str]] = {name: pick(OPTIONS[name]) for name in names}
        if self.random.random() < 0.1:
            query[pick(TEXTS)] = [pick(TEXTS), pick(TEXTS)]
        return query

    def headers(self) -> dict[str, str]:
        pick = self.random.choice
        headers = {"accept": pick(ACCEPT if self.wild else ACCEPT[:3])}
        if not self.wild:
            return headers
        if self.random.random() < 0.1:
            headers |= {"impersonate-user": pick(TEXTS), "impersonate-group": pick(TEXTS)}
        if self.random.random() < 0.1:
            headers["authorization"] = pick(["Bearer x.y.z", "Basic eDp5", "Bearer", "Bearer " + "x" * 5000])
        if self.random.random() < 0.05:
            headers["content-encoding"] = pick(["gzip", "identity", "x"])
        if self.random.random() < 0.1:
            headers["user-agent"] = pick(TEXTS)
        return headers

    def body(self, method: str, media: str) -> bytes:
        if self.random.random() < 0.05:
            return self.random.randbytes(self.random.choice([0, 1, 7, 500]))
        if self.wild and self.random.random() < 0.4:
            value = self.odd()
        elif "json-patch" in media:
            value = [self.operation() for _ in range(self.random.choice([1, 3]))]
        elif method == "DELETE":
            value = {
                self.random.choice(["gracePeriodSeconds", "propagationPolicy", "preconditions", "dryRun"]): self.odd()
            }
        elif "patch" in media:
            value = self.partial()
        else:
            value = self.object()
        if media == PROTOBUF:
            good = self.kind in STORED and self.random.random() < 0.9
            return self.damaged(encoded(sample(self.kind)) if good else b"k8s\x00" + self.random.randbytes(50))
        data = msgspec.json.encode(value)
        if "yaml" in media and self.random.random() < 0.5:
            data = yaml.safe_dump(value).encode("utf-8", "replace")
        return self.damaged(data) if self.random.random() < 0.1 else data

    def object(self) -> dict[str, Any]:
        """An object of the kind: valid, broken, or with values as the schema asks for."""
        if not is_stored(self.kind):
            return {"metadata": {"name": self.name}} | self.made_from_schema()
        obj = valid_object(self.kind)
        obj["metadata"]["name"] = self.name
        how = self.random.random()
        if how < 0.4:
            return self.broken(obj)
        return obj | self.made_from_schema() if how < 0.7 else obj

    def partial(self) -> dict[str, Any]:
        """Some parts of an object, and directives of a strategic merge patch now and then."""
        obj = self.broken(self.object()) if self.random.random() < 0.5 else self.object()
        kept = {name: value for name, value in obj.items() if self.random.random() < 0.7}
        if self.random.random() < 0.2:
            kept["$patch"] = self.random.choice(["replace", "delete", "merge", 1])
        if self.random.random() < 0.2:
            kept["metadata"] = {self.random.choice(["labels", "annotations", "finalizers", "x"]): self.odd()}
        return kept

    def operation(self) -> dict[str, Any]:
        pick = self.random.choice
        places = [
            "/metadata/labels",
            "/spec",
            "",
            "/a~1b",
            "/-",
            "x",
            "/metadata/name",
            "/spec/-",
            "/status",
            "/data/0",
        ]
        return {"op": pick(["add", "remove", "replace", "move", "copy", "test", "x"]), "path": pick(places),
                "from": pick(["/metadata", "/spec", "/spec/x"]), "value": self.odd()}  # fmt: skip

    def damaged(self, data: bytes) -> bytes:
        """Up to two bytes that are lost, added or replaced."""
        for _ in range(self.random.choice([0, 1, 2])):
            place = self.random.randrange(len(data) + 1)
            data = data[:place] + self.random.randbytes(1) + data[place + self.random.choice([0, 1, 5]) :]
        return data

    def made_from_schema(self) -> dict[str, Any]:
        """Every part of an object but its metadata, with values of the types that the schema asks for."""
        definition = DEFINITIONS.name_of(self.kind.group, self.kind.version, self.kind.kind)
        made: dict[str, Any] = self.of(definition) if definition else {}
        return {name: value for name, value in made.items() if name not in ("apiVersion", "kind", "metadata")}


ALLOWED = {
    # upstream's code for an applied object of another form, a scale without its field, a webhook that cannot be called
    500: ("failed to create typed patch object", "the spec replicas field", "failed calling webhook"),
    503: ("is answered by", "no endpoints available", "no service port", "unknown port"),  # what is not connected to
    504: ("Too large resource version",),
}
"""Codes that blame the server, each with its messages."""


def is_allowed(reply: Reply) -> bool:
    """Looks for the message in the bytes: they are JSON, or protobuf for a client that asks for it."""
    return reply.status < 500 or any(message.encode() in reply.raw for message in ALLOWED.get(reply.status, ()))


@pytest.fixture(scope="function" if SOAK else "module")
def fuzzed_house(pki):
    house = House(pki, Settings(limits=Limits(revision_wait=0.001)), stream_seconds=STREAM_SECONDS)
    house.made("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    house.made("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", custom_definition())
    path = CUSTOM.target(namespace="default").path()
    eventually(lambda: house.settle() or house.ask("GET", path).status == 200)
    yield house
    house.close()


def label(kind: Kind) -> str:
    return f"{kind.resource}.{kind.version}.{kind.group}"


def seeds_for(kind: Kind) -> range:
    reproduced, _, seed = os.environ.get("REPRODUCE", "").rpartition(":")
    if reproduced:
        return range(int(seed), int(seed) + (reproduced == label(kind)))
    return range(SEED * 1_000_000, SEED * 1_000_000 + PER_KIND)


@pytest.mark.timeout(3600 if SOAK else 180)
@pytest.mark.parametrize("kind", KINDS, ids=label)
def test_no_request_causes_an_internal_error(fuzzed_house, kind):
    for seed in seeds_for(kind):
        if is_stored(kind) and seed % 5 == 0:
            fuzzed_house.ask("POST", kind.target(namespace="default").path(), valid_object(kind))
        fuzzer = Fuzzer(kind, zlib.crc32(label(kind).encode()) ^ seed)
        method = fuzzer.method()
        media = fuzzer.media(method)
        path, query, headers, user = fuzzer.path(method), fuzzer.query(), fuzzer.headers(), fuzzer.user()
        has_body = fuzzer.random.random() < (0.3 if method in ("GET", "DELETE") else 0.95)
        body = fuzzer.body(method, media) if has_body else None
        reply = fuzzed_house.ask(method, path, body, media=media, query=query, user=user, **headers)
        request = (seed, method, path, query, media, headers, (body or b"")[:500])
        assert is_allowed(reply), (*request, reply.raw[:500])
        assert not fuzzed_house.log.failures, (*request, fuzzed_house.log.failures[0])
        fuzzed_house.log.lines.clear()
    assert fuzzed_house.ask("GET", "/readyz").status == 200


def test_the_hostile_values_are_really_odd():
    """So that the test above can fail: its values include those that broke servers before."""
    assert {"\x00", "..", "*"} <= {value for value in ODD if isinstance(value, str)}
