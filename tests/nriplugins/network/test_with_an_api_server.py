"""Watching, named_resources, statuses and events against a real API server."""

import asyncio
from contextlib import asynccontextmanager, nullcontext

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.nriplugins.network import crds
from podwire.nriplugins.network.informers import Informers
from podwire.nriplugins.network.kinds import DEFINITIONS, PODS, ROUTES
from podwire.nriplugins.network.manifests import Settings, manifests
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.named_resources import NamedReader
from podwire.nriplugins.network.ports import Limits
from podwire.nriplugins.network.resources import Pod
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.nriplugins.network.status_writer import Statuses
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.client_side.events import CORE_V1, WARNING, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Deleted, Synced, key_of
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
CLOCK = SystemClock()
SOON = 40.0


class Silent:
    """A trace that keeps what it receives."""

    def __init__(self):
        self.reported = []

    def reads(self, uid, path):
        self.reported.append(("GET", path))
        return nullcontext(self)

    def configures(self, uid, what):
        self.reported.append(("own", what))
        return nullcontext(self)

    def answered(self, response, outcome="OK"):
        pass


@pytest.fixture
async def api(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://")
    async with running(options) as server:
        client = Client(LoopbackHttp(server.assembled.server.handle, ADMIN))
        client.learn([ROUTES])
        yield client


@asynccontextmanager
async def watched(api):
    """The watches, running, with all that they tell."""
    events = []
    informers = Informers(api, lambda kind, change: events.append((kind, change)), CLOCK.monotonic)
    task = asyncio.ensure_future(informers.run())
    try:
        async with asyncio.timeout(SOON):
            await informers.complete.wait()
            yield informers, events
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def route(name, via="10.1.0.2"):
    spec = {"routes": [{"destinations": ["10.20.0.0/16"], "via": via}]}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "net.podwire.dev/v1", "kind": "PodRoute", "metadata": meta, "spec": spec}


async def created(api, object_):
    """A kind is served a moment after its definition was taken."""
    while True:
        try:
            return await api.create(object_)
        except ApiError as error:
            if error.code != 404:
                raise
        await asyncio.sleep(0.01)


async def test_custom_kinds_come_and_go_with_their_definitions(api):
    async with watched(api) as (informers, reported):
        assert informers.missing == []
        assert informers.find(ROUTES, "default", "a") is None
        await api.create(crds.POD_ROUTE)
        await created(api, route("a"))
        await eventually_async(lambda: informers.find(ROUTES, "default", "a"))
        await api.delete(DEFINITIONS, "podroutes.net.podwire.dev")
        await eventually_async(lambda: informers.find(ROUTES, "default", "a") is None)
        changes = [each for kind, each in reported if kind is ROUTES and not isinstance(each, Synced)]
        await eventually_async(lambda: isinstance([each for kind, each in reported if kind is ROUTES][-1], Deleted))
        assert key_of(changes[0].object) == ("default", "a")


async def test_named_resources_are_requested_then_taken_from_the_cache(api):
    await api.create(crds.POD_ROUTE)
    await created(api, route("a"))
    async with watched(api) as (informers, _):
        await eventually_async(lambda: informers.find(ROUTES, "default", "a"))
        pod = Pod("default", "web", annotations={"net.podwire.dev/routes": "a, nobody,../../etc"})
        trace, meter = Silent(), Meter()
        found = await NamedReader(api, informers, trace, meter).read("uid", pod)
        assert [(item.name, item.object is not None, item.stale) for item in found] == [
            ("a", True, ""),
            ("nobody", False, ""),
        ]
        place = "/apis/net.podwire.dev/v1/namespaces/default/podroutes/"
        assert trace.reported == [("GET", f"{place}a"), ("GET", f"{place}nobody")]

        class Mute:
            async def get(self, *_):
                await asyncio.Event().wait()

        late = Silent()
        found = await NamedReader(Mute(), informers, late, meter, Limits(read=0.01)).read("uid", pod)
        version = informers.find(ROUTES, "default", "a")["metadata"]["resourceVersion"]
        assert ("own", f"read (cache, rv {version}) podroutes/a") in late.reported
        assert ("own", "read (cache, rv -) podroutes/nobody") in late.reported
        assert found[0].object == informers.find(ROUTES, "default", "a")
        assert "the cache is" in found[0].stale
        assert 'named_reads_total{source="cache"} 2' in meter.text({})


async def test_statuses_of_two_nodes_match_the_definition_and_converge(api):
    await api.create(crds.POD_ROUTE)
    made = await created(api, route("a"))
    async with watched(api) as (informers, _):
        nodes = []
        for name, count in (("n1", 2), ("n2", 3)):
            pods = [_local(f"{name}-{number}", made["metadata"]["uid"]) for number in range(count)]
            statuses = Statuses(api, CLOCK, name)
            statuses.look_up_in(lambda pods=pods: pods, informers.find)
            nodes.append(statuses)
        tasks = [asyncio.ensure_future(node.run()) for node in nodes]
        try:
            sums = []
            while not sums or sums[-1] != 5:
                for item in nodes:  # as the keeper does whenever the copy changes
                    item.touch(ROUTES, made)
                await asyncio.sleep(0.05)
                sums.append((informers.find(ROUTES, "default", "a").get("status") or {}).get("pods"))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        status = informers.find(ROUTES, "default", "a")["status"]
        assert [(node["name"], node["pods"]) for node in status["nodes"]] == [("n1", 2), ("n2", 3)]


def _local(name, uid):
    made = Sandbox(id=name, uid=name, namespace="default", name=name, netns="", ips=(), labels={}, annotations={})
    made.selected_by = frozenset([uid])
    return made


async def test_events_are_sent_once_and_then_counted(api):
    recorder = Recorder(api, CLOCK, component="trial", host="n1")
    task = asyncio.ensure_future(recorder.run())
    note = Reference("Pod", "web", "default", "u1"), WARNING, "PodRouteMissing", "nobody has it"
    try:
        for count in (1, 2):
            recorder.tell(*note)
            async with asyncio.timeout(SOON):
                await recorder.idle()
            [event] = (await api.list(CORE_V1.kind, Scope(namespace="default"))).items
            assert event["count"] == count
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (event["reason"], event["involvedObject"]["name"]) == ("PodRouteMissing", "web")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(Settings(), id="as they are"),
        pytest.param(Settings(kubeconfig="/etc/kc", api_host="192.0.2.1", api_port="6443"), id="with all settings"),
    ],
)
async def test_the_manifests_are_taken_by_an_api_server(api, settings):
    for item in manifests(settings):
        await api.create(item)
    rules = next(manifest for manifest in manifests(settings) if manifest["kind"] == "ClusterRole")["rules"]
    assert {"apiGroups": [""], "resources": ["pods", "namespaces", "nodes"], "verbs": ["get", "list", "watch"]} in rules
    assert PODS.resource in rules[0]["resources"]
