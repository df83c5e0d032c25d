"""Statuses on their way to a real API server: the newest once, to the right pod, through outages, without echoes."""

import asyncio
import contextlib

import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet.pods.limits import StatusLimits
from podwire.kubelet.pods.status_manager import PODS, StatusManager
from podwire.objects import pods
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope, Unreachable
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Added, Updated
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock

SOON = 30.0


class Line(Client):
    """To the API server; counts patches, and can be cut."""

    def __init__(self, http):
        super().__init__(http)
        self.sent = []
        self.trouble = None
        self.tried = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def patch(self, kind, name, patch, namespace="", **more):
        self.tried.set()
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        self.sent.append(patch["status"])
        return await super().patch(kind, name, patch, namespace, **more)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki.open(tmp_path_factory.mktemp("pki"), names=[], ips=[])


class World:
    def __init__(self, api):
        self.api = api
        self.reports = StatusManager(api, StatusLimits())

    def limit(self, **limits):
        self.reports._limits = StatusLimits(**limits)

    async def make(self, name="p"):
        """A new pod, as a kubelet sees it."""
        spec = {"nodeName": "n", "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
        meta = {"name": name, "namespace": "default"}
        object_ = await self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        pod = pods.read(object_)
        self.reports.update(pod, object_)
        return pod

    async def delete(self, pod):
        await self.api.delete(PODS, pod.name, pod.namespace, grace_seconds=0)

    async def status(self, name="p"):
        return (await self.api.get(PODS, name, "default")).get("status", {})

    async def settled(self, pod):
        async with asyncio.timeout(SOON):
            await self.reports.sent(pod.uid)

    async def tried(self):
        async with asyncio.timeout(SOON):
            await self.api.tried.wait()
        self.api.tried.clear()

    async def see(self, pod):
        """Events that the watch delivers now."""
        object_ = await self.api.get(PODS, pod.name, pod.namespace)
        self.reports.update(pods.read(object_), object_)


@pytest.fixture
async def world(pki):
    assembled = assemble(MemoryStore(), pki, SystemClock(), Settings())
    await assembled.start()
    api = Line(LoopbackHttp(assembled.server.handle, Certificate("admin", ("system:masters",))))
    made = World(api)
    tasks = [asyncio.create_task(item) for item in (assembled.run(), made.reports.run())]
    account = {"name": "default", "namespace": "default"}
    await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    yield made
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


def said(phase, message=None, *conditions):
    status = {"phase": phase, "conditions": [{"type": condition, "status": "True"} for condition in conditions]}
    return {**status, "message": message} if message else status


async def test_a_status_is_sent_once(world):
    pod = await world.make()
    world.reports.report(pod, said("Running"))
    await world.settled(pod)
    assert (await world.status())["phase"] == "Running"
    world.reports.report(pod, said("Running"))
    await world.see(pod)
    world.reports.report(pod, said("Running"))
    await world.settled(pod)
    assert len(world.api.sent) == 1


def starting(reason="ContainerCreating", message=""):
    waiting = {"reason": reason} | ({"message": message} if message else {})
    container = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "lastState": {}}
    return said("Pending") | {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}


async def test_a_starting_pod_is_reported_when_it_takes_long(world):
    world.limit(starting_delay=SOON)
    pod = await world.make()
    world.reports.report(pod, starting())
    await asyncio.sleep(0.05)
    assert not world.api.sent
    world.reports.report(pod, said("Running"))
    await world.settled(pod)
    assert [item["phase"] for item in world.api.sent] == ["Running"]
    world.limit(starting_delay=0.01)
    slow = await world.make("slow")
    world.reports.report(slow, starting())
    await world.settled(slow)
    (container,) = (await world.status("slow"))["containerStatuses"]
    assert container["state"] == {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(starting("ErrImagePull", "no such image"), id="a failure"),
        pytest.param(starting("ContainerCreating", "failed to attach"), id="a reason"),
        pytest.param(said("Failed"), id="an end"),
    ],
)
async def test_a_failure_is_reported_at_once(world, status):
    world.limit(starting_delay=SOON)
    pod = await world.make()
    world.reports.report(pod, starting())
    world.reports.report(pod, status)
    async with asyncio.timeout(SOON / 2):
        await world.reports.sent(pod.uid)
    assert len(world.api.sent) == 1


async def test_only_changed_fields_are_sent(world):
    pod = await world.make()
    for status in (said("Running", "hello"), said("Running", "world"), said("Running")):
        world.reports.report(pod, status)
        await world.settled(pod)
    assert [item.get("message") for item in world.api.sent] == ["hello", "world", None]
    assert [sorted(item) for item in world.api.sent] == [["message", "phase"], ["message"], ["message"]]
    assert "message" not in await world.status()


async def test_a_superseded_status_is_never_sent(world):
    pod = await world.make()
    world.api.gate.clear()
    for number in range(10):
        world.reports.report(pod, said("Running", f"at {number}"))
        await asyncio.sleep(0)
    await world.tried()
    world.api.gate.set()
    await world.settled(pod)
    assert (await world.status())["message"] == "at 9"
    assert len(world.api.sent) == 2, "the first was on its way already"


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Unreachable("nobody listens"), id="nobody listens"),
        pytest.param(ApiError(Reason.SERVICE_UNAVAILABLE, "the store is away"), id="the store is away"),
        pytest.param(ApiError(Reason.TOO_MANY_REQUESTS, "later"), id="too many requests"),
    ],
)
async def test_after_an_outage_the_latest_is_sent_once(world, trouble):
    world.limit(backoff=(0.05, 0.05))
    pod = await world.make()
    world.api.trouble = trouble
    world.reports.report(pod, said("Pending", "before"))
    await world.tried()
    world.reports.report(pod, said("Running", "meanwhile"))
    await world.tried()
    world.api.trouble = None
    await world.settled(pod)
    assert (await world.status())["message"] == "meanwhile"
    assert len(world.api.sent) == 1


async def test_another_pod_of_the_same_name_never_gets_the_status(world):
    old = await world.make()
    world.api.gate.clear()
    world.reports.report(old, said("Failed", "I was the old one"))
    await world.tried()
    await world.delete(old)
    new = await world.make()
    world.api.gate.set()
    await world.settled(old)
    assert (await world.status())["phase"] == "Pending"
    world.reports.report(new, said("Running", "I am the new one"))
    await world.settled(new)
    assert (await world.status())["message"] == "I am the new one"


async def test_a_deleted_pod_is_not_an_error(world, caplog):
    pod = await world.make()
    await world.delete(pod)
    world.reports.report(pod, said("Running"))
    await world.settled(pod)
    assert not caplog.records


async def test_a_rejected_status_is_logged_and_not_repeated(world, caplog):
    pod = await world.make()
    world.api.trouble = ApiError(Reason.INVALID, "no such phase")
    world.reports.report(pod, said("Dancing"))
    await world.settled(pod)
    assert [record.message for record in caplog.records] == ["API server rejected pod status"]
    world.api.trouble = None
    world.reports.report(pod, said("Running"))
    await world.settled(pod)
    assert (await world.status())["phase"] == "Running"


async def test_nothing_is_sent_for_a_pod_that_was_forgotten(world):
    world.limit(backoff=(0.05, 0.05))
    pod = await world.make()
    world.api.trouble = Unreachable("nobody listens")
    world.reports.report(pod, said("Running"))
    await world.tried()
    waiting = asyncio.ensure_future(world.reports.sent(pod.uid))
    await asyncio.sleep(0)
    world.reports.forget(pod.uid)
    async with asyncio.timeout(SOON):
        await waiting
    world.reports.report(pod, said("Running"))
    assert world.api.sent == []


async def test_an_echo_that_was_overtaken_is_nothing_new(world):
    pod = await world.make()
    early = await world.api.get(PODS, pod.name, pod.namespace)
    world.reports.report(pod, said("Running"))
    await world.settled(pod)
    world.reports.update(pods.read(early), early)
    await world.settled(pod)
    assert len(world.api.sent) == 1
    assert world.reports.latest(pod.uid)["phase"] == "Running"


async def test_foreign_changes_of_our_fields_are_overwritten(world):
    pod = await world.make()
    world.reports.report(pod, said("Running", "all is well"))
    await world.settled(pod)
    patch = {"status": {"message": "I know better"}}
    await Client.patch(world.api, PODS, pod.name, patch, pod.namespace, subresource="status")
    await world.see(pod)
    await world.settled(pod)
    assert (await world.status())["message"] == "all is well"


async def test_nothing_leads_back_from_an_end_that_others_wrote(world):
    pod = await world.make()
    world.reports.report(pod, said("Running"))
    await world.settled(pod)
    patch = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await Client.patch(world.api, PODS, pod.name, patch, pod.namespace, subresource="status")
    await world.see(pod)
    world.reports.report(pod, said("Running", "still"))
    await world.settled(pod)
    assert (await world.status())["phase"] == "Failed"
    assert len(world.api.sent) == 1
    latest = world.reports.latest(pod.uid)
    assert (latest["phase"], latest["reason"]) == ("Failed", "Evicted")


async def test_conditions_of_others_stay_and_are_seen(world):
    pod = await world.make()
    world.reports.report(pod, said("Running", None, "Ready"))
    await world.settled(pod)
    gate = {"type": "x.io/gate", "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await Client.patch(world.api, PODS, pod.name, {"status": {"conditions": [gate]}}, "default", subresource="status")
    await world.see(pod)
    assert {condition["type"] for condition in world.reports.latest(pod.uid)["conditions"]} == {"Ready", "x.io/gate"}
    world.reports.report(pod, said("Running", "more", "Ready"))
    await world.settled(pod)
    assert {condition["type"] for condition in (await world.status())["conditions"]} == {"Ready", "x.io/gate"}


async def test_a_status_that_the_server_rewrites_is_not_sent_for_ever(world):
    """A watch echoes every status; a server that keeps something differently may not start an endless talk."""
    pod = await world.make()
    informer = world.api.informer(PODS, Scope(namespace="default"))
    odd = {**said("Running"), "startTime": "2026-01-01T00:00:00+00:00"}  # it is kept in Zulu time
    async with informer, asyncio.timeout(SOON):
        async for change in informer:
            if isinstance(change, Added | Updated):
                world.reports.update(pods.read(change.object), change.object)
                world.reports.report(pod, odd)
                await world.settled(pod)
                if change.object["status"].get("phase") == "Running":
                    break
        await world.see(pod)
        for _ in range(20):
            world.reports.report(pod, odd)
            await world.settled(pod)
            await world.see(pod)
    assert len(world.api.sent) <= 3


async def test_of_a_pod_that_was_never_seen_nothing_is_known(world):
    assert world.reports.latest("nobody") == {}
    await world.reports.sent("nobody")


def test_all_errors_of_a_line_that_is_cut_are_client_errors():
    assert issubclass(Unreachable, ClientError)


async def test_nothing_is_begun_while_it_ends(world):
    """A component that ends beside it may still have something to say, which nobody can send any more."""
    pod, other = await world.make(), await world.make("other")
    reports_ = StatusManager(world.api, StatusLimits())
    for item in (pod, other):
        reports_.update(item, await world.api.get(PODS, item.name, item.namespace))
    words = []

    class LastWords:
        async def patch(self, *_arguments, **_more):
            world.api.tried.set()
            try:
                await asyncio.Event().wait()
            finally:
                reports_.report(other, {"phase": "Running"})
                words.append(other.name)

    reports_._api = LastWords()
    running = asyncio.create_task(reports_.run())
    await asyncio.sleep(0)
    reports_.report(pod, {"phase": "Running"})
    await world.tried()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert words == ["other"]
