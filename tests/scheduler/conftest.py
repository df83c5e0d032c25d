"""A real API server on a store in memory, and schedulers beside it."""

import asyncio
import contextlib
import time

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.objects import nodes
from podwire.protocols.k8sapi.client_side import Client, Interrupted, Scope, Unreachable
from podwire.protocols.k8sapi.client_side.events import EVENTS_V1
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.scheduler import Limits, Scheduler, Snapshot, pod_info
from podwire.scheduler.kinds import PODS
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
SOON = 40.0


def node_object(name="n1", labels=None, images=(), allocatable=None, **spec):
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", **(allocatable or {})},
            "images": images,
        },
    }


def pod_object(name="web", labels=None, requests=None, owner="", namespace="default", deleting=False, **spec):
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": labels or {}}
    if deleting:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": True}]
    container = {"name": "c", "image": "busybox:1.36", "resources": {"requests": requests or {}}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


@pytest.fixture(scope="session")
def make_pod():
    """A pod as the scheduler weighs it."""
    return lambda name="web", **given: pod_info.read(pod_object(name, **given))


@pytest.fixture(scope="session")
def make_snapshot():
    """Nodes by name with what is special about them, and pods by the node that they are on."""

    def make(described=None, placed=(), namespaces=None):
        snapshot = Snapshot()
        snapshot.namespaces.update(namespaces or {})
        for name, given in (described if described is not None else {"n1": {}}).items():
            snapshot.put_node(nodes.read(node_object(name, **given)))
        for node, name, given in placed:
            snapshot.put_pod(pod_info.read(pod_object(name, **given)), node)
        return snapshot

    return make


class Wire:
    """Passes on what is asked; `disturb(method, path, send)` may do something else instead."""

    def __init__(self, http):
        self._http = http
        self.calls = []
        self.watches = []
        self.disturb = None
        self.up = asyncio.Event()
        self.up.set()
        self._cut = asyncio.Event()
        self.late = {}
        """Watches by their field selector that tell nothing before an event is set."""

    def cut(self):
        """The server is gone, and with it every stream."""
        self.up.clear()
        self._cut.set()

    def mend(self):
        self._cut = asyncio.Event()
        self.up.set()

    async def request(self, method, path, **rest):
        self._at_least(method, path)
        self.calls.append((method, path))

        async def send():
            return await self._http.request(method, path, **rest)

        return await (self.disturb(method, path, send) if self.disturb else send())

    async def stream(self, method, path, *, query=(), headers=None):
        self._at_least(method, path)
        selector = dict(query).get("fieldSelector", "")
        self.watches.append((path, selector))
        incoming = await self._http.stream(method, path, query=query, headers=headers)
        return Cuttable(incoming, self._cut, self.late.get(selector))

    def _at_least(self, method, path):
        if not self.up.is_set():
            raise Unreachable(f"{method} {path}: connection refused")


class Cuttable:
    """A stream that ends with an error when the server goes."""

    def __init__(self, incoming, cut, reported):
        self._incoming = incoming
        self._cut = cut
        self._reported = reported
        self.status, self.headers = incoming.status, incoming.headers

    async def read(self):
        if self._reported is not None:
            await self._reported.wait()
        reading = asyncio.ensure_future(self._incoming.read())
        cutting = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait((reading, cutting), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise Interrupted("reset by peer")
            return reading.result()
        finally:
            for item in (reading, cutting):
                item.cancel()
            await asyncio.gather(reading, cutting, return_exceptions=True)

    def close(self):
        self._incoming.close()


class Cluster:
    """Writes of a test to the API, in few words."""

    def __init__(self, server):
        self.server = server
        self.api = self.client()
        self.limits = {}

    def wire(self):
        """A way to the server that a test can disturb."""
        return Wire(LoopbackHttp(self.server.assembled.server.handle, ADMIN))

    def client(self):
        return Client(self.wire())

    async def node(self, name="n1", *, cpu="4", memory="8Gi", pods="110", labels=None, **spec):
        made = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}},
        }
        return await self.api.create(made)

    async def pod(self, name="web", *, labels=None, requests=None, **spec):
        container = {"name": "c", "image": "busybox:1.36", "resources": {"requests": requests or {}}}
        given = {"containers": [container], **spec}
        meta = {"name": name, "namespace": "default", "labels": labels or {}}
        return await self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": given})

    async def events(self, reason, name="web", done=lambda _event: True):
        """Those about a pod, as soon as there are any and they are as they should be."""
        selector = f"reason={reason},regarding.name={name}"
        end = time.monotonic() + SOON
        while True:
            found = (await self.api.list(EVENTS_V1.kind, Scope(field_selector=selector))).items
            if found and all(map(done, found)):
                return found
            assert time.monotonic() < end, found
            await asyncio.sleep(0.01)

    async def on_nodes(self):
        """The names of pods by node, the empty name for those that wait."""
        found = {}
        for item in (await self.api.list(PODS)).items:
            found.setdefault(item["spec"].get("nodeName", ""), set()).add(item["metadata"]["name"])
        return found

    async def all_placed(self, count):
        """The pods by node, once so many have one and none is without."""

        async def placed():
            pods = await self.on_nodes()
            assert "" not in pods, pods
            assert sum(map(len, pods.values())) >= count, pods
            return pods

        return await eventually_async(placed)

    async def all_placed_or_refused(self):
        async def decided():
            return all(scheduled(pod) for pod in (await self.api.list(PODS)).items)

        await eventually_async(decided)

    async def seen(self, name="web"):
        return await self.api.get(PODS, name, "default")

    async def placed(self, name="web"):
        """The pod, once it has a node."""
        return await self.eventually(name, lambda pod: pod["spec"].get("nodeName"))

    async def refused(self, name, text):
        """The condition of a pod that waits, once it says so in these words."""
        pod = await self.eventually(name, lambda pod: text in scheduled(pod).get("message", ()))
        return scheduled(pod)

    async def eventually(self, name, done):
        """The pod, once a condition on it holds."""

        async def matching():
            pod = await self.seen(name)
            assert done(pod), pod
            return pod

        return await eventually_async(matching)

    @contextlib.asynccontextmanager
    async def scheduler(self, wire=None, **limits):
        given = Limits(**{**self.limits, **limits})
        task = asyncio.create_task(Scheduler(Client(wire or self.wire()), SystemClock(), limits=given).run())
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def scheduled(pod):
    conditions = pod["status"].get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})


@pytest.fixture
async def cluster(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        cluster = Cluster(server)
        account = {"name": "default", "namespace": "default"}
        await cluster.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        yield cluster


@pytest.fixture
async def working(cluster):
    async with cluster.scheduler():
        yield cluster
