"""A real API server on a store in memory, and schedulers beside it."""

import asyncio
import contextlib
import time

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.objects import nodes
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.scheduler import Scheduler, Snapshot, podinfo
from podwire.scheduler.kinds import PODS
from podwire.transports.clock import SystemClock

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


def pod_object(name="web", labels=None, requests=None, owner="", namespace="default", **spec):
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": labels or {}}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": True}]
    container = {"name": "c", "image": "busybox:1.36", "resources": {"requests": requests or {}}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


@pytest.fixture(scope="session")
def make_pod():
    """A pod as the scheduler weighs it."""
    return lambda name="web", **given: podinfo.read(pod_object(name, **given))


@pytest.fixture(scope="session")
def make_snapshot():
    """Nodes by name with what is special about them, and pods by the node that they are on."""

    def make(described=None, placed=()):
        snapshot = Snapshot()
        for name, given in (described if described is not None else {"n1": {}}).items():
            snapshot.put_node(nodes.read(node_object(name, **given)))
        for node, name, given in placed:
            snapshot.put_pod(podinfo.read(pod_object(name, **given)), node)
        return snapshot

    return make


class Cluster:
    """What a test does to the API, in few words."""

    def __init__(self, server):
        self.server = server
        self.api = self.client()

    def client(self):
        return Client(LoopbackHttp(self.server.assembled.server.handle, ADMIN))

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

    async def seen(self, name="web"):
        return await self.api.get(PODS, name, "default")

    async def placed(self, name="web"):
        """The pod, once it has a node."""
        return await self.eventually(name, lambda pod: pod["spec"].get("nodeName"))

    async def refused(self, name="web", text=""):
        """The condition of a pod that waits, once it says so."""
        pod = await self.eventually(name, lambda pod: text in scheduled(pod).get("message", "\0"))
        return scheduled(pod)

    async def eventually(self, name, done):
        end = time.monotonic() + SOON
        while not done(pod := await self.seen(name)):
            assert time.monotonic() < end, pod
            await asyncio.sleep(0.01)
        return pod

    @contextlib.asynccontextmanager
    async def scheduler(self, api=None):
        task = asyncio.create_task(Scheduler(api or self.client(), SystemClock()).run())
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def scheduled(pod):
    conditions = pod["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


@pytest.fixture
async def cluster(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=False)
    async with running(options) as server:
        cluster = Cluster(server)
        account = {"name": "default", "namespace": "default"}
        await cluster.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        yield cluster


@pytest.fixture
async def working(cluster):
    async with cluster.scheduler():
        yield cluster
