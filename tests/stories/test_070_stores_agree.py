"""The same requests on every store: the same answers and the same watches, but for revisions, uids and times."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from tests.eventually import eventually_async

NAMESPACE = "/api/v1/namespaces/trace"
MAPS = f"{NAMESPACE}/configmaps"
PODS = f"{NAMESPACE}/pods"
JSON, MERGE = "application/json", "application/merge-patch+json"
JSON_PATCH, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
OPTIONS = ("--controllers", "*,-deployment-controller,-replicaset-controller,-disruption-controller,-job-controller")
"""Without those that write the status of what the requests make, sooner or later than the next request."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_ADDRESS = re.compile(r"\b10\.96\.\d+\.\d+\b")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"((?:[Rr]esource ?[Vv]ersion[a-z ]*|current)(?:: | ?\())\d+( \(\d+\))?")
_CHANCE = re.compile(r"\b(generated-|kube-api-access-)[a-z0-9]{5}\b")


@dataclass
class Trace:
    """Asks one server, and writes down what it says in words that do not depend on when and where."""

    http: aiohttp.ClientSession
    answers: list[Any] = field(default_factory=list)
    uids: dict[str, str] = field(default_factory=dict)
    watches: dict[str, asyncio.Task] = field(default_factory=dict)

    async def ask(self, method, path, body=None, media=JSON, accept=JSON):
        """The decoded answer, as it is; what is written down is the plain form of it."""
        data = body if isinstance(body, str) else None if body is None else json.dumps(body)
        headers = {"Content-Type": media, "Accept": accept}
        async with self.http.request(method, path, data=data, headers=headers) as answer:
            text = await answer.text()
            decoded = json.loads(text) if answer.content_type.endswith("json") else text
            shown = self.plain(decoded)
            warnings = [self.plain(item) for item in answer.headers.getall("Warning", [])]
            self.answers.append((method, self.plain(path), answer.status, warnings, shown))
            return decoded

    def watch(self, name, path, until):
        self.watches[name] = asyncio.create_task(self._watch(path, until))

    async def _watch(self, path, until):
        """Plain events up to the one about an object of this name, or to the end that the server sets."""
        events = []
        async with asyncio.timeout(30), self.http.get(path) as answer:
            async for line in answer.content:
                event = json.loads(line)
                events.append(self.plain(event))
                if (event["object"].get("metadata") or {}).get("name") == until:
                    break
        return events

    def plain(self, value):
        if isinstance(value, dict):
            return {self._text(name): self._member(name, each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.plain(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _member(self, name, value):
        if name in ("resourceVersion", "continue", "nodePort", "ca.crt"):
            return name.upper()
        if name == "managedFields":  # they come by time, in seconds, which other seconds order otherwise
            return sorted(self.plain(value), key=json.dumps)
        return self.plain(value)

    def _text(self, text):
        text = _UID.sub(lambda found: self.uids.setdefault(found[0], f"UID{len(self.uids)}"), text)
        text = _CHANCE.sub(r"\1CHANCE", _NUMBER.sub(r"\1NUMBER", _ADDRESS.sub("ADDRESS", _TIME.sub("TIME", text))))
        return re.sub(r"resourceVersion=\d+", "resourceVersion=NUMBER", re.sub(r"continue=\S+", "continue=TOKEN", text))


def config_map(name, data=None, **labels):
    return {"metadata": {"name": name, "labels": labels}, "data": data or {}}


def pod(name, **spec):
    containers = [{"name": "c", "image": "nginx"}]
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": containers, **spec}}


async def writing(trace):
    """Create, replace, patch, delete, and every way to be refused."""
    ask = trace.ask
    first = await ask("POST", MAPS, config_map("one", {"a": "1"}, app="x"))
    await ask("POST", MAPS, config_map("one"))
    await ask("POST", MAPS, {"metadata": {"generateName": "generated-"}})
    await ask("POST", MAPS, {"metadata": {"name": "Bad Name"}})
    await ask("POST", MAPS, {"metadata": {"name": "bad", "namespace": "elsewhere"}})
    await ask("POST", MAPS, {"metadata": {"name": "bad", "resourceVersion": "5"}})
    await ask("POST", MAPS, {"metadata": {"name": "odd"}, "dat": {}, "data": {"a": "b"}})
    await ask("POST", f"{MAPS}?fieldValidation=Strict", {"metadata": {"name": "odd2"}, "dat": {}})
    await ask("POST", f"{MAPS}?dryRun=All", config_map("dry"))
    await ask("POST", MAPS, "{not json")
    await ask("POST", MAPS, "a: b", media="text/plain")
    await ask("POST", MAPS, "{metadata: {name: yaml}, data: {a: b}}", media="application/yaml")
    await ask("POST", "/api/v1/namespaces/absent/configmaps", config_map("one"))
    await ask("PUT", f"{MAPS}/one", {**first, "data": {"a": "2"}})
    await ask("PUT", f"{MAPS}/one", {**first, "data": {"a": "3"}})
    unchanged = await ask("PATCH", f"{MAPS}/one", {"data": {"a": "2"}}, MERGE)
    again = await ask("GET", f"{MAPS}/one")
    assert unchanged["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    await ask("PUT", f"{MAPS}/absent", config_map("absent"))
    await ask("PUT", f"{NAMESPACE}/endpoints/made", {"metadata": {"name": "made"}})
    await ask("PATCH", f"{MAPS}/one", [{"op": "add", "path": "/data/b", "value": "4"}], JSON_PATCH)
    await ask("PATCH", f"{MAPS}/one", [{"op": "test", "path": "/data/b", "value": "5"}], JSON_PATCH)
    await ask("PATCH", f"{MAPS}/one", {"data": {"$patch": "replace", "c": "6"}}, STRATEGIC)
    await ask("PATCH", f"{MAPS}/one?fieldManager=m", {"data": {}}, APPLY)
    whole = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("one")}
    await ask("PATCH", f"{MAPS}/one?fieldManager=m", {**whole, "data": {"c": "7", "d": "8"}}, APPLY)
    await ask("PATCH", f"{MAPS}/one?fieldManager=m&force=true", {**whole, "data": {"c": "7", "d": "8"}}, APPLY)
    await ask("PATCH", f"{MAPS}/one?fieldManager=m", {**whole, "data": {"c": "7"}}, APPLY)
    await ask("PATCH", f"{MAPS}/one", {"metadata": {"labels": {"app": "y"}}}, MERGE)
    await ask("PATCH", f"{MAPS}/one", {"metadata": {"finalizers": ["example.com/hold"]}}, MERGE)
    await ask("DELETE", f"{MAPS}/one", {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}})
    await ask("DELETE", f"{MAPS}/one", {"preconditions": {"resourceVersion": "1"}})
    await ask("DELETE", f"{MAPS}/one?dryRun=All")
    await ask("DELETE", f"{MAPS}/one")
    await ask("DELETE", f"{MAPS}/one")
    await ask("PATCH", f"{MAPS}/one", {"metadata": {"finalizers": None}}, MERGE)
    await ask("GET", f"{MAPS}/one")
    await ask("DELETE", f"{MAPS}/one")
    await ask("POST", f"{MAPS}/one", {})
    await ask("PUT", MAPS, {})


async def reading(trace):
    """Lists: whole, by pages, by selectors, as of a revision, in other forms."""
    ask = trace.ask
    for number in range(7):
        await ask("POST", MAPS, config_map(f"list-{number}", {"n": str(number)}, odd=str(number % 2), list="yes"))
    page = await ask("GET", f"{MAPS}?limit=3&labelSelector=list")
    await ask("DELETE", f"{MAPS}/list-5")
    token = page["metadata"]["continue"]
    rest = await ask("GET", f"{MAPS}?limit=3&labelSelector=list&continue={token}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["list-3", "list-4", "list-5"]
    revision = page["metadata"]["resourceVersion"]
    await ask("GET", f"{MAPS}?labelSelector=list&resourceVersion={revision}&resourceVersionMatch=Exact")
    await ask("GET", f"{MAPS}?labelSelector=list&resourceVersion={revision}&resourceVersionMatch=NotOlderThan")
    await ask("GET", f"{MAPS}?labelSelector=list&resourceVersion=0")
    await ask("GET", f"{MAPS}?resourceVersionMatch=Exact")
    await ask("GET", f"{MAPS}?continue=nonsense")
    await ask("GET", f"{MAPS}?labelSelector=list,odd=1,odd+notin+(5)")
    await ask("GET", f"{MAPS}?labelSelector=a+b")
    await ask("GET", f"{MAPS}?fieldSelector=metadata.name=list-2")
    await ask("GET", f"{MAPS}?fieldSelector=data.n=2")
    await ask("GET", "/api/v1/configmaps?labelSelector=list&limit=2")
    await ask("GET", f"{MAPS}?labelSelector=list", accept=PARTIAL)
    await ask("GET", MAPS, accept="text/html")
    await ask("GET", f"{MAPS}?limit=-1")
    await ask("GET", f"{MAPS}/list-1?pretty=true")
    await ask("DELETE", f"{MAPS}?labelSelector=list,odd=1")
    await ask("GET", f"{MAPS}?labelSelector=list")
    for path in (
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps/v1",
        "/version",
        "/healthz",
        "/apis/nothing/v1",
        "/openapi/v3",
    ):
        await ask("GET", path)


async def acting(trace):
    """Kinds that do more than lie there."""
    ask = trace.ask
    await ask("POST", PODS, pod("web"))
    await ask("POST", PODS, pod("wrong", containers=[]))
    await ask("POST", PODS, pod("held", priorityClassName="system-node-critical", nodeSelector={"a": "b"}))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    await ask("POST", f"{PODS}/web/binding", {"metadata": {"name": "web"}, "target": target})
    await ask("POST", f"{PODS}/web/binding", {"metadata": {"name": "web"}, "target": target})
    await ask("PATCH", f"{PODS}/web", {"spec": {"hostNetwork": True}}, MERGE)
    await ask("PATCH", f"{PODS}/web/status", {"status": {"phase": "Running"}, "spec": {"x": 1}}, MERGE)
    await ask("GET", f"{PODS}?fieldSelector=spec.nodeName=n1,status.phase=Running")
    await ask("GET", f"{PODS}/web/log")
    budget = {"metadata": {"name": "none"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}}
    await ask("POST", "/apis/policy/v1/namespaces/trace/poddisruptionbudgets", budget)
    await ask("POST", f"{PODS}/web/eviction", {"metadata": {"name": "web"}})
    await ask("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 60})
    await ask("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 0})
    await ask("DELETE", f"{PODS}/held")
    template = {"metadata": {"labels": {"app": "d"}}, "spec": pod("")["spec"]}
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
    deployments = "/apis/apps/v1/namespaces/trace/deployments"
    await ask("POST", deployments, {"metadata": {"name": "d"}, "spec": spec})
    await ask("PATCH", f"{deployments}/d/scale", {"spec": {"replicas": 5}}, MERGE)
    await ask("GET", f"{deployments}/d")
    await ask("POST", f"{NAMESPACE}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    headless = {"clusterIP": "None", "ports": [{"port": 80}]}
    await ask("POST", f"{NAMESPACE}/services", {"metadata": {"name": "h"}, "spec": headless})
    await ask("POST", f"{NAMESPACE}/services", {"metadata": {"name": "far"}, "spec": {"clusterIP": "192.0.2.1"}})
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}
    await ask("PUT", "/apis/coordination.k8s.io/v1/namespaces/trace/leases/l", lease)
    await ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "trace"}}})  # fmt: skip
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {}}]}}}
    await ask("POST", "/apis/resource.k8s.io/v1/namespaces/trace/resourceclaims", claim)


async def defining(trace):
    """A custom resource definition and its objects."""
    ask = trace.ask
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "pools", "kind": "Pool"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    await ask("POST", definitions, {"metadata": {"name": "pools.example.com"}, "spec": spec})
    pools = "/apis/example.com/v1/namespaces/trace/pools"
    await served(trace, pools, 200)
    pool = {"apiVersion": "example.com/v1", "kind": "Pool", "metadata": {"name": "deep"}}
    await ask("POST", pools, {**pool, "spec": {}})
    await ask("POST", pools, {**pool, "spec": {"size": "many"}})
    await ask("PATCH", f"{pools}/deep", {"spec": {"size": 4, "more": 1}}, MERGE)
    await ask("PATCH", f"{pools}/deep", {}, STRATEGIC)
    await ask("GET", pools, accept=TABLE)
    await ask("GET", f"{definitions}/pools.example.com")
    async with trace.http.delete(f"{definitions}/pools.example.com"):
        await served(trace, pools, 404)
    await ask("GET", pools)


async def served(trace, path, status):
    """Wait, without writing it down: how long it takes is the store's own affair."""

    async def answered():
        async with trace.http.get(path) as answer:
            return answer.status == status

    await eventually_async(answered)


async def recorded_by(server):
    """The whole trace on one server: answers and watches."""
    connector = aiohttp.TCPConnector(limit=0, ssl=server.tls)
    async with aiohttp.ClientSession(server.url, connector=connector) as http:
        trace = Trace(http)
        await trace.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "trace"}})
        await served(trace, f"{MAPS}/kube-root-ca.crt", 200)
        await served(trace, f"{NAMESPACE}/serviceaccounts/default", 200)
        start = (await trace.ask("GET", MAPS))["metadata"]["resourceVersion"]
        trace.watch("from a revision", f"{MAPS}?watch=true&resourceVersion={start}", "last")
        trace.watch("by a label", f"{MAPS}?watch=true&resourceVersion={start}&labelSelector=app!=y", "last")
        trace.watch("from the present", f"{PODS}?watch=true", "last")
        await asyncio.sleep(0.2)
        for part in (writing, reading, acting, defining):
            await part(trace)
        listing = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
        trace.watch("with initial events", f"{MAPS}?{listing}&timeoutSeconds=1", "")
        trace.watch("from the beginning", f"{MAPS}?watch=true&resourceVersion=1", "last")
        await trace.watches["with initial events"]
        await trace.ask("POST", MAPS, config_map("last"))
        await trace.ask("POST", PODS, pod("last"))
        watched = {name: await task for name, task in trace.watches.items()}
        await trace.ask("DELETE", NAMESPACE)
        await served(trace, NAMESPACE, 404)
        await trace.ask("POST", MAPS, config_map("late"))
    return trace.answers, watched


@pytest.mark.parametrize("store", ["sqlite", "etcd"])
async def test_a_store_gives_the_answers_that_memory_gives(start_server, etcd, store):
    url = {"sqlite": "sqlite://", "etcd": etcd.url()}[store]
    model = await asyncio.to_thread(start_server, "memory", *OPTIONS, store="memory://")
    other = await asyncio.to_thread(start_server, store, *OPTIONS, store=url)
    (expected, watched), (answers, seen) = await asyncio.gather(recorded_by(model), recorded_by(other))
    for one, another in zip(expected, answers, strict=True):
        assert one == another, f"{store} answers {another[:2]} otherwise"
    for name, events in watched.items():
        assert seen[name] == events, f"a watch {name}"
    assert len(expected) > 100
    assert len(watched["from a revision"]) > 20
