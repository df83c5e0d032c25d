"""A whole API server without sockets, asked as a stranger would ask it: one call, one judged answer.

Every test that uses `house` is also judged at its end: whatever was sent, nothing may have failed inside the server.
"""

import asyncio
import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import BodyTooLarge, Certificate, Request, Stream
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock

ADMIN = Certificate("kubernetes-admin", ("system:masters",))
JSON = "application/json"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True)
class Reply:
    """An answer, read to its end."""

    status: int
    raw: bytes
    headers: Mapping[str, str]
    content_type: str = JSON
    warnings: tuple[str, ...] = ()

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def fields(self) -> list[str]:
        """The fields that a refusal names."""
        return [each.get("field", "") for each in self.body.get("details", {}).get("causes", [])]


class Failures(logging.Handler):
    """Keeps what the server logs: all of it as text, and apart what went wrong inside."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self.lines.append(f"{text} {vars(record)}")
        if record.exc_info or record.levelno >= logging.ERROR:
            self.failures.append(text)


class House:
    """The server, its store and its log; every method works until it has the whole answer."""

    def __init__(self, pki: Pki, settings: Settings | None = None) -> None:
        self._runner = asyncio.Runner()
        self.log = Failures()
        self._logger = logging.getLogger("podwire")
        self._level = self._logger.level
        self._logger.addHandler(self.log)
        self._logger.setLevel(logging.DEBUG)
        self.store = MemoryStore()
        self.assembled = assemble(self.store, pki, SystemClock(), settings)
        self.run(self._decode_token())

    async def _decode_token(self) -> None:
        await self.assembled.start()
        self._background = asyncio.create_task(self.assembled.run())

    def close(self) -> None:
        self.run(self._close())
        self._runner.close()
        self._logger.removeHandler(self.log)
        self._logger.setLevel(self._level)

    async def _close(self) -> None:
        alive = not self._background.done()
        self._background.cancel()
        await asyncio.gather(self._background, return_exceptions=True)
        await self.store.close()
        assert alive, "the server's own work ended"

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    def settle(self) -> None:
        """Let what follows the store catch up."""
        self.run(asyncio.sleep(0.01))

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = JSON,
        query: Mapping[str, str | list[str]] | None = None,
        user: Certificate | None = ADMIN,
        **headers: str,
    ) -> Reply:
        """One request; a body of bytes goes as it is, another as JSON. Streams are read until they end."""
        data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def read(limit: int) -> bytes:
            if len(data) > limit:
                raise BodyTooLarge(limit)
            return data

        request = Request(
            method=method,
            path=path,
            query={name: [given] if isinstance(given, str) else given for name, given in (query or {}).items()},
            headers={"content-type": media, **named},
            certificate=user,
            read=read,
        )
        return self.run(self._ask(request))

    async def _ask(self, request: Request) -> Reply:
        answer = await self.assembled.server.handle(request)
        headers = {name.lower(): value for name, value in answer.headers}
        warnings = tuple(value for name, value in answer.headers if name == "Warning")
        if isinstance(answer, Stream):
            chunks = [chunk async for chunk in answer.chunks]
            return Reply(answer.status, b"".join(chunks), headers, answer.content_type)
        return Reply(answer.status, answer.body, headers, answer.content_type, warnings)

    def refused(self, method: str, path: str, body: Any = None, **how: Any) -> Reply:
        """A request that must be refused: by a proper Status, with nothing stored and no revision spent."""
        before = self.state()
        reply = self.ask(method, path, body, **how)
        judge_refusal(reply)
        assert self.state() == before, f"{reply.status} {reply.raw[:500]!r}, but something was stored"
        return reply

    def made(self, path: str, body: Any, **how: Any) -> Any:
        """A POST that must succeed; the object."""
        reply = self.ask("POST", path, body, **how)
        assert reply.status == 201, reply.raw[:2000]
        return reply.body

    def state(self) -> tuple[int, dict[str, bytes]]:
        """All that is stored, and the revision."""
        page = self.run(self.store.list("/"))
        return self.store.revision, {each.key: each.value for each in page.items}

    def readable(self, collection: str, name: str) -> None:
        """What was stored can be read, listed, shown as a table and watched."""
        for accept in (JSON, TABLE, PARTIAL):
            assert self.ask("GET", f"{collection}/{name}", accept=accept).body["apiVersion"]
            listed = self.ask("GET", collection, accept=accept)
            assert listed.status == 200, listed.raw[:2000]
            assert listed.body["rows" if accept == TABLE else "items"]
        assert name in [each["object"]["metadata"]["name"] for each in self.watched(collection)]

    def watched(self, collection: str, **query: str) -> list[Any]:
        """What a watch from the beginning shows at first."""
        asked = {name: [value] for name, value in {"watch": "1", **query}.items()}
        return self.run(self._first(Request(method="GET", path=collection, query=asked, certificate=ADMIN)))

    async def _first(self, request: Request) -> list[Any]:
        answer = await self.assembled.server.handle(request)
        assert isinstance(answer, Stream), answer
        async with asyncio.timeout(30), contextlib.aclosing(answer.chunks) as chunks:
            first = await anext(chunks)
        return [msgspec.json.decode(each) for each in first.splitlines()]


def judge_refusal(reply: Reply) -> None:
    """A Status as clients know it: right in itself, and without a word about our insides."""
    assert 400 <= reply.status < 500 or reply.status in (501, 503, 504), reply.raw[:2000]
    assert reply.content_type == JSON, reply.raw[:200]
    status = reply.body
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == reply.status
    assert status["reason"], status
    assert status["message"], status
    for word in ("Traceback", "podwire/", "NoneType", "object has no attribute", "<class", " object at 0x"):
        assert word not in status["message"], status["message"]


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.open(tmp_path_factory.mktemp("abuse"), names=["localhost"], ips=["127.0.0.1"])


@pytest.fixture
def house(pki: Pki) -> Iterator[House]:
    """A server with a namespace `default` that has its service account."""
    yield from _opened(pki)


@pytest.fixture(scope="module")
def shared_house(pki: Pki) -> Iterator[House]:
    """One for all tests of a module, for those that leave nothing behind or do not mind."""
    yield from _opened(pki)


def _opened(pki: Pki) -> Iterator[House]:
    house = House(pki)
    house.made("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    yield house
    house.close()
    assert not house.log.failures, house.log.failures[0]


# A valid object of every kind: what must be given is given here, the rest is for the schema.

_CONTAINER = {"name": "c", "image": "nginx"}
_POD_SPEC = {"containers": [_CONTAINER]}
_LABELS = {"app": "web"}
_TEMPLATE = {"metadata": {"labels": _LABELS}, "spec": _POD_SPEC}
_SELECTED = {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}
_JOB = {"template": {"spec": {**_POD_SPEC, "restartPolicy": "Never"}}}
_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
_RBAC_SUBJECT = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
_TARGET = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

_GIVEN: dict[tuple[str, str], Mapping[str, Any]] = {
    ("", "pods"): {"spec": _POD_SPEC},
    ("", "podtemplates"): {"template": _TEMPLATE},
    ("", "replicationcontrollers"): {"spec": {"selector": _LABELS, "template": _TEMPLATE}},
    ("", "services"): {"spec": {"ports": [{"port": 80}]}},
    ("", "persistentvolumeclaims"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    ("", "events"): {"involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}},
    ("events.k8s.io", "events"): {
        "regarding": {"kind": "Pod", "name": "x", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "R",
        "action": "A",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
    },
    ("apps", "daemonsets"): {"spec": _SELECTED},
    ("apps", "deployments"): {"spec": _SELECTED},
    ("apps", "replicasets"): {"spec": _SELECTED},
    ("apps", "statefulsets"): {"spec": {**_SELECTED, "serviceName": "web"}},
    ("apps", "controllerrevisions"): {"revision": 1, "data": {"a": 1}},
    ("autoscaling", "horizontalpodautoscalers"): {"spec": {"maxReplicas": 3, "scaleTargetRef": _TARGET}},
    ("batch", "jobs"): {"spec": _JOB},
    ("batch", "cronjobs"): {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": _JOB}}},
    ("networking.k8s.io", "ipaddresses"): {"spec": {"parentRef": {"resource": "gateways", "name": "g"}}},
    ("rbac.authorization.k8s.io", "clusterrolebindings"): {"roleRef": _ROLE, "subjects": [_RBAC_SUBJECT]},
    ("rbac.authorization.k8s.io", "rolebindings"): {"roleRef": _ROLE, "subjects": [_RBAC_SUBJECT]},
    ("rbac.authorization.k8s.io", "clusterroles"): {
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    },
    ("rbac.authorization.k8s.io", "roles"): {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ("coordination.k8s.io", "leases"): {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}},
    ("discovery.k8s.io", "endpointslices"): {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    },
    ("", "endpoints"): {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "samples", "singular": "sample", "kind": "Sample", "listKind": "SampleList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
        }
    },
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): {
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
                ]
            },
            "validations": [{"expression": "true"}],
        }
    },
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {
        "spec": {"policyName": "sample", "validationActions": ["Deny"]}
    },
    ("node.k8s.io", "runtimeclasses"): {"handler": "runc"},
    ("scheduling.k8s.io", "priorityclasses"): {"value": 10},
    ("resource.k8s.io", "deviceclasses"): {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    ("resource.k8s.io", "devicetaintrules"): {"spec": {"taint": {"key": "k", "effect": "NoSchedule"}}},
    ("resource.k8s.io", "resourceclaims"): {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "example.com"}}]}}
    },
    ("resource.k8s.io", "resourceclaimtemplates"): {
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "example.com"}}]}}}
    },
    ("resource.k8s.io", "resourceslices"): {
        "spec": {
            "driver": "example.com",
            "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}],
        }
    },
    ("resource.k8s.io/v1beta1", "resourceclaims"): {
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "example.com"}]}}
    },
    ("resource.k8s.io/v1beta1", "resourceclaimtemplates"): {
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "example.com"}]}}}
    },
    ("networking.k8s.io", "networkpolicies"): {"spec": {"podSelector": {}}},
    ("networking.k8s.io", "ingresses"): {
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}
    },
    ("policy", "poddisruptionbudgets"): {"spec": {"minAvailable": 1, "selector": {"matchLabels": _LABELS}}},
    ("", "limitranges"): {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    ("", "resourcequotas"): {"spec": {"hard": {"pods": "10"}}},
    ("", "persistentvolumes"): {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
        }
    },
    ("storage.k8s.io", "storageclasses"): {"provisioner": "example.com/p"},
    ("storage.k8s.io", "volumeattributesclasses"): {"driverName": "example.com", "parameters": {"a": "b"}},
    ("storage.k8s.io", "csinodes"): {"spec": {"drivers": []}},
    ("storage.k8s.io", "csidrivers"): {"spec": {}},
    ("storage.k8s.io", "csistoragecapacities"): {"storageClassName": "fast"},
    ("storage.k8s.io", "volumeattachments"): {
        "spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
    },
}
_NAMES = {
    ("networking.k8s.io", "ipaddresses"): "10.1.2.3",
    ("apiextensions.k8s.io", "customresourcedefinitions"): "samples.example.com",
    ("apiregistration.k8s.io", "apiservices"): "v1.example.com",
}


def sample(kind: Kind) -> dict[str, Any]:
    """A small valid object of a built-in kind."""
    key = (kind.group, kind.resource)
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": _NAMES.get(key, "sample")}}
    given = _GIVEN.get((kind.api_version, kind.resource)) or _GIVEN.get(key, {})
    return copy.deepcopy({**body, **given})


_REFUSED = ("Mutating", "ValidatingWebhook")
"""What the kinds of admission begin with that are not executed, and so not stored."""
STORED = [
    each
    for each in BUILTIN.all
    if "create" in each.verbs and "get" in each.verbs and not each.kind.startswith(_REFUSED)
]


@pytest.fixture(params=STORED, ids=lambda each: f"{each.resource}.{each.version}.{each.group}")
def kind(request: pytest.FixtureRequest) -> Kind:
    """Every built-in kind that is stored, one after the other."""
    return request.param


@pytest.fixture(scope="session")
def samples() -> Any:
    """A small valid object by kind, as a function."""
    return sample
