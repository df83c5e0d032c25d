"""Requests made at random for every kind: methods, paths, queries, headers, media types, bodies, users.

None may cause an internal error, and none may leave the server unable to answer the next. Most of a request is as it
should be, so that the rest gets far; a third of them is wild.

A failure names its seed: `REPRODUCE=kind:seed` runs that request sequence alone.
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
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.abuse.samples import STORED, sample
from tests.apiserver.abuse.support import ADMIN, JSON, PARTIAL, TABLE, House, Reply
from tests.apiserver.abuse.test_mutations import ODD, TEXTS, Maker

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_SEED", "1"))
TOTAL = 10_000 if SOAK else 1_000
KINDS = [kind for kind in BUILTIN.all if kind in STORED or kind.verbs == ("create",)]
PER_KIND = max(1, TOTAL // len(KINDS))

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
BODIES = [JSON, JSON, "application/yaml", "application/vnd.kubernetes.protobuf"]
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


class Fuzzer(Maker):
    """Requests to one kind."""

    def __init__(self, kind: Kind, seed: int) -> None:
        super().__init__(seed)
        self.kind = kind
        self.wild = self.random.random() < 0.35

    def method(self) -> str:
        return self.random.choice(ODD_METHODS if self.wild else METHODS)

    def media(self, method: str) -> str:
        if self.wild:
            return self.random.choice(MEDIA)
        return self.random.choice(PATCHES if method == "PATCH" else BODIES)

    def user(self) -> Certificate | None:
        return self.random.choice(USERS) if self.wild else ADMIN

    def path(self) -> str:
        pick, kind = self.random.choice, self.kind
        name, namespace = pick(["sample", "sample", "sample", ""]), "default"
        if self.wild:
            name = pick([name, "", "absent", pick(["..", "%2e%2e", "a%2fb", "%00", "x" * 300, "ü"])])
            namespace = pick(["default", "default", "default", "absent", "kube-system", "..", ""])
        parts = [part.name for part in kind.subresources]
        part = pick([*parts, "status", "scale", "nothing", "proxy/a/b", "exec"]) if self.random.random() < 0.3 else ""
        path = kind.target(namespace=namespace).path() + (f"/{name}" if name else "")
        path += f"/{part}" if part and name else ""
        if self.wild and self.random.random() < 0.1:
            path = path.replace("/", pick(["//", "/./", "/../"]), 1) + pick(["/", "?", ";x", ""])
        return path

    def query(self) -> dict[str, str | list[str]]:
        pick = self.random.choice
        names = self.random.sample(sorted(OPTIONS), pick([0, 0, 0, 1, 2]) + self.wild)
        query: dict[str, str | list[str]] = {name: pick(OPTIONS[name]) for name in names}
        if self.random.random() < 0.1:
            query[pick(TEXTS)] = [pick(TEXTS), pick(TEXTS)]
        if "watch" in query:
            query["timeoutSeconds"] = "1"
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

    def body(self, media: str) -> bytes:
        how = self.random.random()
        if how < 0.1:
            return self.random.randbytes(self.random.choice([0, 1, 7, 500]))
        if how < 0.5 and self.kind in STORED:
            value: Any = self.broken(sample(self.kind)) if how > 0.25 else sample(self.kind)
        elif how < 0.6:
            value = self.odd()
        elif how < 0.75:
            value = [
                {"op": self.random.choice(["add", "remove", "replace", "move", "copy", "test", "x"]),
                 "path": self.random.choice(["/metadata/labels", "/spec", "", "/a~1b", "/-", "x", "/metadata/name"]),
                 "from": "/metadata", "value": self.odd()}
                for _ in range(self.random.choice([1, 3]))
            ]  # fmt: skip
        else:
            value = {"metadata": {self.random.choice(["labels", "annotations", "finalizers", "x"]): self.odd()},
                     "spec": self.odd(), "$patch": self.random.choice(["replace", "delete", "merge", 1])}  # fmt: skip
        data = msgspec.json.encode(value)
        if "yaml" in media and self.random.random() < 0.5:
            data = yaml.safe_dump(value).encode("utf-8", "replace")
        if "protobuf" in media:
            data = b"k8s\x00" + self.random.randbytes(self.random.choice([3, 50, 500]))
        if self.random.random() < 0.1 and data:
            place = self.random.randrange(len(data))
            data = data[:place] + self.random.randbytes(1) + data[place + self.random.choice([0, 1, 5]) :]
        return data


def is_allowed(reply: Reply) -> bool:
    """No internal errors. Two answers have upstream's codes, which blame the server for what the client did."""
    if reply.status < 500 or reply.status in (501, 503):
        return True
    if reply.status == 504:
        return "Too large resource version" in reply.message
    return reply.status == 500 and "failed to create typed patch object" in reply.message


@pytest.fixture(scope="module")
def fuzzed_house(pki):
    house = House(pki, Settings(limits=Limits(revision_wait=0.001)))
    house.made("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    yield house
    house.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.resource}.{kind.version}.{kind.group}")
def test_no_request_causes_an_internal_error(fuzzed_house, kind):
    reproduce = os.environ.get("REPRODUCE", "")
    seeds = range(SEED * 1_000_000, SEED * 1_000_000 + PER_KIND)
    if reproduce:
        resource, _, seed = reproduce.rpartition(":")
        seeds = (
            range(int(seed), int(seed) + 1) if resource == f"{kind.resource}.{kind.version}.{kind.group}" else range(0)
        )
    for seed in seeds:
        if kind in STORED and seed % 5 == seeds[0] % 5:
            fuzzed_house.ask("POST", kind.target(namespace="default").path(), sample(kind))
        salted = zlib.crc32(f"{kind.resource}.{kind.version}.{kind.group}".encode()) ^ seed
        fuzzer = Fuzzer(kind, salted)
        method = fuzzer.method()
        media = fuzzer.media(method)
        path, query, headers = fuzzer.path(), fuzzer.query(), fuzzer.headers()
        body = fuzzer.body(media) if fuzzer.random.random() < 0.8 else None
        user = fuzzer.user()
        if method == "POST" and not fuzzer.wild:
            path = kind.target(namespace="default").path() if fuzzer.random.random() < 0.8 else path
        reply = fuzzed_house.ask(method, path, body, media=media, query=query, user=user, **headers)
        assert is_allowed(reply), (seed, method, path, query, media, (body or b"")[:500], reply.raw[:500])
        failures, fuzzed_house.log.failures[:] = list(fuzzed_house.log.failures), []
        assert not failures, (seed, method, path, query, media, (body or b"")[:500], failures[0])
    assert fuzzed_house.ask("GET", "/readyz").status == 200


def test_the_hostile_values_are_really_odd():
    """So that the test above can fail: its values include those that broke servers before."""
    assert {"\x00", "..", "*"} <= {value for value in ODD if isinstance(value, str)}
