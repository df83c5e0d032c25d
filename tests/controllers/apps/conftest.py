"""A server with controllers in its process, nodes that run every pod at once, and a count of what controllers ask."""

import asyncio
import contextlib

import pytest

from podwire import controllers
from podwire.cluster.apiserver import Options, running
from podwire.cluster.apiserver_controllers import StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.kinds import PODS
from podwire.controllers.registry import ALL
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.clock import SystemClock
from tests.controllers.leases import hold_lease
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
CONTROLLERS = Certificate("system:podwire:controllers")


class Line:
    """The controllers' connection, which notes what they ask."""

    def __init__(self, http) -> None:
        self._http = http
        self.requests: list[tuple[str, str]] = []

    async def request(self, method, path, **options):
        self.requests.append((method, path))
        return await self._http.request(method, path, **options)

    async def stream(self, method, path, **options):
        return await self._http.stream(method, path, **options)

    def count(self, method: str, part: str = "") -> int:
        return sum(asked == method and part in path for asked, path in self.requests)


class Nodes:
    """Kubelets and a scheduler for tests: binds pods to the nodes in turn and reports them as ready.

    Images whose name begins with `broken` never get ready, and those with `rejected` fail at once. Deleted pods end at
    once.
    """

    def __init__(self, api: Client, names: tuple[str, ...] = ("one", "two")) -> None:
        self._api, self._names, self._turn = api, names, 0
        self.paused = False

    async def run(self) -> None:
        async for _change in self._api.informer(PODS):
            if not self.paused:
                await self.step()

    async def step(self) -> None:
        for pod in (await self._api.list(PODS)).items:
            with contextlib.suppress(ApiError):
                await self._serve(pod)

    async def _serve(self, pod) -> None:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if meta.get("deletionTimestamp"):
            await self._api.delete(PODS, meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
        elif not spec.get("nodeName"):
            self._turn += 1
            node = pinned_node(spec) or self._names[self._turn % len(self._names)]
            await self._api.bind(meta["name"], meta["namespace"], node)
        elif status.get("phase") == "Pending":
            image = spec["containers"][0]["image"]
            phase = "Failed" if image.startswith("rejected") else "Running"
            await self.report(pod, ready=phase == "Running" and not image.startswith("broken"), phase=phase)

    async def report(self, pod, *, ready: bool, phase: str = "Running") -> None:
        now = rfc3339(SystemClock().wall())
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}]
        await self._api.patch(
            PODS,
            pod["metadata"]["name"],
            {"status": {"phase": phase, "conditions": conditions}},
            pod["metadata"]["namespace"],
            subresource="status",
        )


def pinned_node(spec) -> str:
    """Returns the node that a DaemonSet's pod is meant for."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name":
                return field["values"][0]
    return ""


class Cluster:
    """A cluster as a test sees it: the API server, its client and simulated nodes."""

    def __init__(self, server, line: Line, api: Client, nodes: Nodes) -> None:
        self.server, self.line, self.api, self.nodes = server, line, api, nodes

    async def pods(self, **labels) -> list:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found = (await self.api.list(PODS, Scope(namespace="default", label_selector=selector))).items
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    async def settled(self) -> None:
        """Until the controllers have asked nothing for a while."""

        async def quiet():
            before = len(self.line.requests)
            await asyncio.sleep(0.3)
            return len(self.line.requests) == before

        await eventually_async(quiet)

    async def until(self, kind, name, condition):
        async def check():
            found = await self.api.get(kind, name, "default")
            return found if condition(found) else None

        return await eventually_async(check)

    async def events(self, name: str) -> list[tuple[str, str]]:
        from podwire.controllers.kinds import EVENTS

        found = (await self.api.list(EVENTS, Scope(namespace="default"))).items
        return [(event["reason"], event["message"]) for event in found if event["involvedObject"]["name"] == name]


@contextlib.asynccontextmanager
async def background(*works):
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def cluster(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        handle = server.assembled.server.handle
        api, line = Client(LoopbackHttp(handle, ADMIN)), Line(LoopbackHttp(handle, CONTROLLERS))
        feed = StoreFeed(server.assembled.engine.store, server.assembled.engine.registry)
        nodes = Nodes(api)
        work = controllers.run(Client(line), feed, SystemClock(), root_ca="PEM", names=ALL)
        async with background(work, nodes.run()):
            await hold_lease(api)
            yield Cluster(server, line, api, nodes)


def template(image: str = "nginx:1", **labels):
    return {
        "metadata": {"labels": labels or {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image}], "terminationGracePeriodSeconds": 1},
    }


def workload(kind: str, name: str = "web", **spec):
    """A workload of one template; `spec` overrides."""
    return {
        "apiVersion": "v1" if kind == "ReplicationController" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template(), **spec},
    }
