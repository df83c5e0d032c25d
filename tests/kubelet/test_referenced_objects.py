"""ConfigMaps and Secrets that pods use: watched by name, once, and no longer than needed; on a real API server."""

import asyncio
import contextlib

import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet.referenced_objects import NotSynced, Reference, ReferencedObjects, references_of
from podwire.objects import pods
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock

SOON = 30.0
CONFIG_MAPS = BUILTIN.of_kind("v1", "ConfigMap")


class WatchedClient(Client):
    """Knows which objects are watched."""

    def __init__(self, http):
        super().__init__(http)
        self.opened = []
        self.open = 0
        self.moved = asyncio.Event()

    def informer(self, kind, scope):
        self.opened.append((kind.kind, scope.namespace, scope.field_selector))
        inner, client = super().informer(kind, scope), self

        class Counted:
            async def __aenter__(self):
                client.open += 1
                client.moved.set()
                return inner

            async def __aexit__(self, *_):
                client.open -= 1
                client.moved.set()
                inner.close()

        return Counted()


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki.open(tmp_path_factory.mktemp("pki"), names=[], ips=[])


class World:
    def __init__(self, api, linger):
        self.api = api
        self.reported = asyncio.Queue()
        self.references = ReferencedObjects(api, self.reported.put_nowait, linger=linger)

    async def make(self, kind, name, **data):
        meta = {"name": name, "namespace": "default"}
        await self.api.create({"apiVersion": "v1", "kind": kind, "metadata": meta, **data})

    async def changed(self):
        async with asyncio.timeout(SOON):
            return await self.reported.get()

    async def open(self, count):
        """Until so many watches are open."""
        async with asyncio.timeout(SOON):
            while self.api.open != count:
                self.api.moved.clear()
                await self.api.moved.wait()


@pytest.fixture
async def world(pki, request):
    assembled = assemble(MemoryStore(), pki, SystemClock(), Settings())
    await assembled.start()
    api = WatchedClient(LoopbackHttp(assembled.server.handle, Certificate("admin", ("system:masters",))))
    made = World(api, getattr(request, "param", 60.0))
    tasks = [asyncio.create_task(item) for item in (assembled.run(), made.references.run())]
    yield made
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


def pod(uid="u1", **spec):
    return pods.read({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec})


def using(uid, *names):
    return pod(uid, volumes=[{"name": name, "configMap": {"name": name}} for name in names])


at_once = pytest.mark.parametrize("world", [0.0], indirect=True, ids=["without lingering"])


def test_all_references_of_a_pod_are_listed():
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}},
        {"name": "C", "value": "plain"},
        {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    whole = [{"configMapRef": {"name": "c2"}}, {"secretRef": {"name": "s2"}}]
    given = pod(
        initContainers=[{"name": "i", "env": env[:1]}],
        containers=[{"name": "c", "env": env, "envFrom": whole}],
        ephemeralContainers=[{"name": "e", "envFrom": [{"secretRef": {"name": "s3"}}]}],
        imagePullSecrets=[{"name": "s4"}, {}],
        volumes=[
            {"name": "1", "configMap": {"name": "c3"}},
            {"name": "2", "secret": {"secretName": "s5"}},
            {"name": "3", "projected": {"sources": [{"configMap": {"name": "c4"}}, {"secret": {"name": "s6"}}]}},
            {"name": "4", "emptyDir": {}},
        ],
    )
    assert references_of(given) == {
        *(Reference("ConfigMap", "default", f"c{number}") for number in range(1, 5)),
        *(Reference("Secret", "default", f"s{number}") for number in range(1, 7)),
    }


async def test_an_existing_object_is_returned_and_a_missing_one_is_none(world):
    await world.make("ConfigMap", "a", data={"k": "v"})
    world.references.hold(using("u1", "a", "b"))
    assert (await world.references.get("ConfigMap", "default", "a"))["data"] == {"k": "v"}
    assert await world.references.get("ConfigMap", "default", "b") is None
    assert sorted(world.api.opened) == [
        ("ConfigMap", "default", "metadata.name=a"),
        ("ConfigMap", "default", "metadata.name=b"),
    ]


async def test_one_watch_serves_all_pods(world):
    await world.make("ConfigMap", "a", data={"k": "1"})
    for uid in ("u1", "u2"):
        world.references.hold(using(uid, "a"))
        world.references.hold(using(uid, "a"))
    await world.references.get("ConfigMap", "default", "a")
    assert world.reported.empty(), "an object that existed at the start was reported as a change"
    await world.api.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, "default")
    assert await world.changed() == {"u1", "u2"}
    assert (await world.references.get("ConfigMap", "default", "a"))["data"] == {"k": "2"}
    assert len(world.api.opened) == 1


async def test_created_and_deleted_objects_wake_their_pods(world):
    world.references.hold(using("u1", "a"))
    assert await world.references.get("ConfigMap", "default", "a") is None
    await world.make("ConfigMap", "a")
    assert await world.changed() == {"u1"}
    await world.api.delete(CONFIG_MAPS, "a", "default")
    assert await world.changed() == {"u1"}
    assert await world.references.get("ConfigMap", "default", "a") is None


@at_once
async def test_an_unused_watch_is_closed(world):
    world.references.hold(using("u1", "a", "b"))
    world.references.hold(using("u2", "a"))
    await world.open(2)
    world.references.release("u1")
    await world.open(1)
    world.references.release("u2")
    world.references.release("u2")
    await world.open(0)


@at_once
async def test_a_changed_reference_closes_the_old_watch(world):
    world.references.hold(using("u1", "a"))
    await world.references.get("ConfigMap", "default", "a")
    world.references.hold(using("u1", "b", "c"))
    await world.open(2)


async def test_the_next_pod_finds_the_watch_of_the_one_before(world):
    world.references.hold(using("u1", "a"))
    await world.references.get("ConfigMap", "default", "a")
    world.references.release("u1")
    world.references.hold(using("u2", "a"))
    await world.references.get("ConfigMap", "default", "a")
    assert len(world.api.opened) == 1
    await world.make("ConfigMap", "a")
    assert await world.changed() == {"u2"}


@at_once
async def test_an_object_that_no_pod_holds_is_read_once(world):
    await world.make("Secret", "s", data={"k": "eA=="})
    assert await world.references.get("Secret", "default", "s") is not None
    await world.open(0)
    assert await world.references.get("Secret", "default", "s") is not None
    await world.open(0)


async def test_objects_held_before_the_start_are_watched(world):
    early = ReferencedObjects(world.api, world.reported.put_nowait)
    early.hold(using("u1", "a"))
    asking = asyncio.create_task(early.get("ConfigMap", "default", "a"))
    running = asyncio.create_task(early.run())
    assert await asking is None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


async def test_a_get_before_the_first_list_times_out(world):
    idle = ReferencedObjects(world.api, world.reported.put_nowait, sync=0.01)
    with pytest.raises(NotSynced, match="failed to sync secret cache: timed out waiting for the condition"):
        await idle.get("Secret", "default", "s")


async def test_a_rejected_watch_is_reported_and_retried_by_the_next_get(world, monkeypatch):
    real = world.api.informer

    class Refused:
        async def __aenter__(self):
            raise ApiError(Reason.BAD_REQUEST, "not like this")

        async def __aexit__(self, *_):
            pass

    monkeypatch.setattr(world.api, "informer", lambda *_: Refused())
    world.references.hold(using("u1", "a"))
    with pytest.raises(NotSynced, match="failed to sync configmap cache: not like this"):
        await world.references.get("ConfigMap", "default", "a")
    monkeypatch.setattr(world.api, "informer", real)
    assert await world.references.get("ConfigMap", "default", "a") is None
