"""A whole kubelet between a real API server and a runtime in memory that fails as a test says."""

import asyncio
import contextlib
import itertools
import re

import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet import Kubelet, Outside, starting, worker
from podwire.kubelet.files import node_dns
from podwire.kubelet.kit import Dns
from podwire.kubelet.node import NodeSettings
from podwire.kubelet.observed import UID
from podwire.kubelet.reports import PODS
from podwire.linux.machine import RealMachine
from podwire.linux.mounts import KernelMounts
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import Internal, NotFound, Unavailable
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Added, Deleted, Updated
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock
from podwire.transports.probing import ProbeSockets

SOON = 30.0
EVENTS = BUILTIN.of_kind("v1", "Event")


class Runtime:
    """Sandboxes and containers in memory; `fails` and `waits` are by the name of a call."""

    def __init__(self):
        self.sandboxes, self.containers, self.inside = {}, {}, {}
        self.calls, self.fails, self.waits = [], {}, {}
        self.called = asyncio.Condition()
        self._numbers, self._listeners = itertools.count(), []

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own name
        name = method.name.rpartition("/")[2]
        self.calls.append(name)
        await self._tell_of_calls()
        if name in self.waits:
            await self.waits[name].wait()
        if self.fails.get(name):
            raise self.fails[name].pop(0)
        answer = getattr(self, re.sub(r"\B([A-Z])", r"_\1", name).lower())(request)
        await self._tell_of_calls()
        return answer

    async def _tell_of_calls(self):
        async with self.called:
            self.called.notify_all()

    async def stream(self, method, request, *, timeout=None):  # noqa: ASYNC109 - the port's own name
        queue = asyncio.Queue()
        self._listeners.append(queue)
        while True:
            yield await queue.get()

    def tell(self, sandbox):
        status = self.pod_sandbox_status(pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox))
        event = pb.ContainerEventResponse(
            pod_sandbox_status=status.status, containers_statuses=status.containers_statuses
        )
        for each in self._listeners:
            each.put_nowait(event)

    def ends(self, name, code=0):
        """The newest container of that name ends by itself."""
        status = [each for each in self.containers.values() if each.metadata.name == name][-1]
        status.state, status.exit_code = pb.CONTAINER_EXITED, code
        self.tell(self.inside[status.id])

    async def until(self, call):
        await self.until_true(lambda: call in self.calls)

    async def until_true(self, condition):
        async with asyncio.timeout(SOON), self.called:
            await self.called.wait_for(condition)

    def version(self, request):
        return pb.VersionResponse(runtime_name="memory", runtime_version="1")

    def status(self, request):
        conditions = [pb.RuntimeCondition(type=each, status=True) for each in ("RuntimeReady", "NetworkReady")]
        return pb.StatusResponse(status=pb.RuntimeStatus(conditions=conditions))

    def list_images(self, request):
        return pb.ListImagesResponse()

    def image_status(self, request):
        return pb.ImageStatusResponse(image=pb.Image(id="sha256:1", repo_tags=[request.image.image]))

    def list_pod_sandbox(self, request):
        wanted = request.filter.label_selector.get(UID)
        items = [
            pb.PodSandbox(id=each.id, metadata=each.metadata, state=each.state, labels=each.labels,
                          annotations=each.annotations)
            for each in self.sandboxes.values()
            if wanted in (None, each.labels[UID])
        ]  # fmt: skip
        return pb.ListPodSandboxResponse(items=items)

    def list_containers(self, request):
        items = [
            pb.Container(id=each.id, pod_sandbox_id=self.inside[each.id], state=each.state, labels=each.labels)
            for each in self.containers.values()
        ]
        return pb.ListContainersResponse(containers=items)

    def pod_sandbox_status(self, request):
        if request.pod_sandbox_id not in self.sandboxes:
            raise NotFound("gone")
        containers = [each for each in self.containers.values() if self.inside[each.id] == request.pod_sandbox_id]
        return pb.PodSandboxStatusResponse(
            status=self.sandboxes[request.pod_sandbox_id], containers_statuses=containers, timestamp=1
        )

    def run_pod_sandbox(self, request):
        id_, config = f"s{next(self._numbers)}", request.config
        self.sandboxes[id_] = pb.PodSandboxStatus(
            id=id_, metadata=config.metadata, labels=config.labels, annotations=config.annotations,
            network=pb.PodSandboxNetworkStatus(ip="10.0.0.9"),
        )  # fmt: skip
        return pb.RunPodSandboxResponse(pod_sandbox_id=id_)

    def stop_pod_sandbox(self, request):
        sandbox = self.sandboxes[request.pod_sandbox_id]
        sandbox.state = pb.SANDBOX_NOTREADY
        for id_, status in self.containers.items():
            if self.inside[id_] == sandbox.id and status.state == pb.CONTAINER_RUNNING:
                status.state, status.exit_code = pb.CONTAINER_EXITED, 137
        return pb.StopPodSandboxResponse()

    def remove_pod_sandbox(self, request):
        self.sandboxes.pop(request.pod_sandbox_id, None)
        for id_ in [each for each in self.containers if self.inside[each] == request.pod_sandbox_id]:
            del self.containers[id_]
        return pb.RemovePodSandboxResponse()

    def create_container(self, request):
        id_, config = f"c{next(self._numbers)}", request.config
        self.inside[id_] = request.pod_sandbox_id
        self.containers[id_] = pb.ContainerStatus(
            id=id_, metadata=config.metadata, state=pb.CONTAINER_CREATED, labels=config.labels,
            annotations=config.annotations, image=config.image,
        )  # fmt: skip
        return pb.CreateContainerResponse(container_id=id_)

    def start_container(self, request):
        self.containers[request.container_id].state = pb.CONTAINER_RUNNING
        return pb.StartContainerResponse()

    def stop_container(self, request):
        self.containers[request.container_id].state = pb.CONTAINER_EXITED
        return pb.StopContainerResponse()

    def remove_container(self, request):
        self.containers.pop(request.container_id, None)
        return pb.RemoveContainerResponse()


class Line(Client):
    """Counts what a kubelet writes of pods; deletes may be refused first."""

    def __init__(self, http):
        super().__init__(http)
        self.patches, self.refusals = [], []

    async def patch(self, kind, name, patch, namespace="", **more):
        if kind == PODS:
            self.patches.append((name, patch))
        return await super().patch(kind, name, patch, namespace, **more)

    async def delete(self, kind, name, namespace="", **more):
        if more.get("uid") and self.refusals:
            raise self.refusals.pop(0)
        return await super().delete(kind, name, namespace, **more)


class World:
    def __init__(self, api, kubelets_api, runtime, kubelet):
        self.api, self.line, self.runtime, self.kubelet = api, kubelets_api, runtime, kubelet

    async def make(self, name="p", **spec):
        spec = {"nodeName": "n", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Never"}], **spec}  # fmt: skip
        meta = {"name": name, "namespace": "default"}
        return await self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    async def until(self, condition, name="p", kind=PODS):
        """The first object of which a condition holds; None when it is gone."""
        scope = Scope(namespace="default", field_selector=f"metadata.name={name}" if kind == PODS else "")
        informer = self.api.informer(kind, scope)
        async with asyncio.timeout(SOON), informer:
            async for change in informer:
                match change:
                    case Added(object_) | Updated(object_) if condition(object_):
                        return object_
                    case Deleted(object_) if condition(None):
                        return None
        raise AssertionError("an informer never ends")

    async def running(self, name="p"):
        return await self.until(lambda each: each and each.get("status", {}).get("phase") == "Running", name)

    async def gone(self, name="p"):
        await self.until(lambda each: each is None, name)

    async def delete(self, name="p"):
        """And wait until it is gone."""
        waiting = asyncio.create_task(self.gone(name))
        await asyncio.sleep(0)
        await self.api.delete(PODS, name, "default")
        await waiting

    async def event(self, reason):
        return (await self.until(lambda each: each and each["reason"] == reason, kind=EVENTS))["message"]


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki.open(tmp_path_factory.mktemp("pki"), names=[], ips=[])


async def forever():
    await asyncio.Event().wait()
    yield


@pytest.fixture
async def world(pki, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "UNREACHABLE_SECONDS", 0.02)
    monkeypatch.setattr(worker, "FAULT_SECONDS", 0.02)
    monkeypatch.setattr(starting, "RETRY_SECONDS", 0.1)
    assembled = assemble(MemoryStore(), pki, SystemClock(), Settings())
    await assembled.start()
    http = LoopbackHttp(assembled.server.handle, Certificate("admin", ("system:masters",)))
    api, line, runtime = Client(http), Line(http), Runtime()
    for object_ in ({"kind": "Namespace", "metadata": {"name": "kube-node-lease"}},
                    {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}):  # fmt: skip
        with contextlib.suppress(ApiError):
            await api.create({"apiVersion": "v1", **object_})
    outside = Outside(
        api=line, cri=runtime, clock=SystemClock(), mounts=KernelMounts(), machine=RealMachine(),
        sockets=ProbeSockets(), network_files=forever, pod_started=lambda *_: None,
    )  # fmt: skip
    dns = Dns(cluster_servers=("10.96.0.10",), cluster_domain="cluster.local", node=node_dns(""))
    kubelet = Kubelet(
        outside, NodeSettings(name="n", addresses=("192.0.2.1",)), tmp_path / "root", tmp_path / "logs", dns
    )
    tasks = [asyncio.create_task(each) for each in (assembled.run(), kubelet.run())]
    yield World(api, line, runtime, kubelet)
    for each in reversed(tasks):
        each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await each


async def test_a_pod_runs_and_goes(world):
    await world.make()
    status = (await world.running())["status"]
    assert status["podIP"] == "10.0.0.9"
    assert status["containerStatuses"][0]["containerID"].startswith("memory://")
    await world.delete()
    assert (world.runtime.sandboxes, world.runtime.containers) == ({}, {})


async def test_at_rest_nothing_is_written(world):
    await world.make()
    await world.running()
    await world.make("q")
    await world.running("q")
    before = len(world.line.patches)
    await world.api.patch(PODS, "p", {"metadata": {"labels": {"changed": "yes"}}}, "default")
    world.runtime.tell(next(iter(world.runtime.sandboxes)))
    await asyncio.sleep(0.3)
    assert len(world.line.patches) == before


async def test_few_words_are_enough_for_a_start(world):
    await world.make()
    await world.running()
    assert len(world.line.patches) <= 3


async def test_a_sandbox_that_fails_is_told_and_tried_again(world):
    world.runtime.fails["RunPodSandbox"] = [Internal("the cable is loose")]
    await world.make()
    assert await world.event("FailedCreatePodSandBox") == "Failed to create pod sandbox: the cable is loose"
    await world.running()


@pytest.mark.parametrize(
    ("call", "reason"),
    [("CreateContainer", "CreateContainerError"), ("StartContainer", "RunContainerError")],
    ids=["made", "started"],
)
async def test_why_a_container_cannot_be_is_told_and_it_is_tried_again(world, call, reason):
    world.runtime.fails[call] = [Internal("out of luck")]
    await world.make()

    def told(each):
        return each and each["status"].get("containerStatuses", [{}])[0].get("state", {}).get("waiting") == {
            "reason": reason,
            "message": "out of luck",
        }

    await world.until(told)
    await world.running()


async def test_a_fault_over_one_pod_is_no_fault_of_others(world, caplog):
    world.runtime.fails["RunPodSandbox"] = [ZeroDivisionError("nobody foresaw this")] * 3
    await world.make()
    await world.make("q")
    await world.running()
    await world.running("q")
    assert "pod not synced" in {each.message for each in caplog.records}


@pytest.mark.parametrize("call", ["RunPodSandbox", "CreateContainer", "StartContainer"])
async def test_a_pod_may_be_deleted_whatever_is_being_done_for_it(world, call):
    world.runtime.waits[call] = asyncio.Event()
    await world.make()
    await world.runtime.until(call)
    await world.delete()
    assert (world.runtime.sandboxes, world.runtime.containers) == ({}, {})


@pytest.mark.parametrize("call", ["StopContainer", "StopPodSandbox", "RemovePodSandbox"])
@pytest.mark.parametrize("error", [Unavailable("away"), ZeroDivisionError("a fault")], ids=["away", "a fault"])
async def test_an_end_is_tried_until_it_succeeds(world, call, error):
    await world.make()
    await world.running()
    world.runtime.fails[call] = [error, error]
    await world.delete()
    assert world.runtime.sandboxes == {}


async def test_an_api_server_that_does_not_let_go_is_asked_again(world):
    await world.make()
    await world.running()
    world.line.refusals = [ApiError(Reason.INTERNAL_ERROR, "not now")] * 2
    await world.delete()


async def test_how_it_ended_is_told_before_it_goes(world):
    await world.make()
    await world.running()
    await world.delete()
    _, last = world.line.patches[-1]
    assert last["status"]["phase"] == "Succeeded"
    assert "terminated" in last["status"]["containerStatuses"][0]["state"]


async def test_a_pod_that_ends_gives_its_network_back_and_keeps_its_containers(world):
    await world.make(restartPolicy="Never")
    await world.running()
    world.runtime.ends("c", 3)
    ended = await world.until(lambda each: each and each["status"]["phase"] == "Failed")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    await world.runtime.until("StopPodSandbox")
    assert len(world.runtime.containers) == 1


async def test_what_others_end_is_ended_and_their_reason_stays(world):
    await world.make()
    await world.running()
    patch = {"status": {"phase": "Failed", "reason": "Evicted", "message": "no room"}}
    await world.api.patch(PODS, "p", patch, "default", subresource="status")
    await world.runtime.until("StopPodSandbox")
    ended = await world.until(
        lambda each: each and "terminated" in each["status"].get("containerStatuses", [{}])[0].get("state", {})
    )
    status = ended["status"]
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "no room")


async def test_a_pod_that_cannot_be_read_harms_nobody(world, caplog):
    world.kubelet.workers.present({"metadata": {"name": "odd", "uid": "x"}, "spec": {"containers": 7}})
    await world.make()
    await world.running()
    assert "pod not understood" in {each.message for each in caplog.records}


async def test_what_belongs_to_no_pod_is_removed(world):
    await world.make()
    await world.running()
    sandbox = next(iter(world.runtime.sandboxes.values()))
    orphan = pb.PodSandboxStatus()
    orphan.CopyFrom(sandbox)
    orphan.id, orphan.metadata.uid, orphan.labels[UID] = "orphan", "nobody", "nobody"
    world.runtime.sandboxes["orphan"] = orphan
    world.runtime.tell("orphan")
    await world.runtime.until_true(lambda: "orphan" not in world.runtime.sandboxes)
    assert sandbox.id in world.runtime.sandboxes
