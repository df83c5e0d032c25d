"""A kubelet's surroundings: a runtime in memory that fails as a test says, and a client that counts requests."""

import asyncio
import contextlib
import itertools
import re
from pathlib import Path

from podwire.kubelet import Kubelet, KubeletPaths, KubeletSettings
from podwire.kubelet.claims import ClaimSettings
from podwire.kubelet.config.dns import DnsSettings, node_dns
from podwire.kubelet.devices import DeviceSettings
from podwire.kubelet.eviction.settings import EvictionSettings
from podwire.kubelet.log_rotation import LogSettings
from podwire.kubelet.node import NodeSettings
from podwire.kubelet.plugin_manager import PluginLimits
from podwire.kubelet.pods.limits import PodLimits, RuntimeLimits
from podwire.kubelet.pods.observed import UID
from podwire.kubelet.pods.status_manager import PODS
from podwire.kubelet.static import StaticLimits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import NotFound
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.watch import Added, Deleted, Updated
from podwire.tasks.uncancelled import Uncancelled

SOON = 30.0
EVENTS = BUILTIN.of_kind("v1", "Event")


class Runtime:
    """Sandboxes and containers in memory; `fails` and `waits` are by the name of a call.

    As in a real runtime, a call goes on when its caller has left.
    """

    def __init__(self):
        self.sandboxes, self.containers, self.inside, self.configs = {}, {}, {}, {}
        self.calls, self.fails, self.waits, self.stats, self.graces = [], {}, {}, {}, []
        self.updates, self.sandbox_updates = [], []
        self.called = asyncio.Condition()
        self._working = Uncancelled()
        self._numbers, self._listeners = itertools.count(), []

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own name
        task = self._working.start(self._answer(method.name.rpartition("/")[2], request))
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await self._working.result(task)

    async def _answer(self, name, request):
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
        for listener in self._listeners:
            listener.put_nowait(event)

    def ends(self, name, code=0):
        """The newest container of that name ends by itself."""
        status = [container for container in self.containers.values() if container.metadata.name == name][-1]
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
        conditions = [pb.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
        return pb.StatusResponse(status=pb.RuntimeStatus(conditions=conditions))

    def image_fs_info(self, request):
        usage = pb.FilesystemUsage(fs_id=pb.FilesystemIdentifier(mountpoint="/"))
        return pb.ImageFsInfoResponse(image_filesystems=[usage])

    def container_stats(self, request):
        """`stats` are by the name of a pod."""
        pod = self.sandboxes[self.inside[request.container_id]].metadata.name
        return pb.ContainerStatsResponse(stats=self.stats.get(pod, pb.ContainerStats()))

    def list_images(self, request):
        return pb.ListImagesResponse()

    def image_status(self, request):
        return pb.ImageStatusResponse(image=pb.Image(id="sha256:1", repo_tags=[request.image.image]))

    def list_pod_sandbox(self, request):
        wanted = request.filter.label_selector.get(UID)
        items = [
            pb.PodSandbox(id=sandbox.id, metadata=sandbox.metadata, state=sandbox.state, labels=sandbox.labels,
                          annotations=sandbox.annotations)
            for sandbox in self.sandboxes.values()
            if wanted in (None, sandbox.labels[UID])
        ]  # fmt: skip
        return pb.ListPodSandboxResponse(items=items)

    def list_containers(self, request):
        wanted = request.filter.label_selector.get(UID)
        items = [
            pb.Container(id=container.id, pod_sandbox_id=self.inside[container.id], state=container.state,
                         labels=container.labels, metadata=container.metadata, annotations=container.annotations)
            for container in self.containers.values()
            if wanted in (None, container.labels[UID])
        ]  # fmt: skip
        return pb.ListContainersResponse(containers=items)

    def pod_sandbox_status(self, request):
        if request.pod_sandbox_id not in self.sandboxes:
            raise NotFound("gone")
        containers = [
            container for container in self.containers.values() if self.inside[container.id] == request.pod_sandbox_id
        ]
        return pb.PodSandboxStatusResponse(
            status=self.sandboxes[request.pod_sandbox_id], containers_statuses=containers, timestamp=1
        )

    def run_pod_sandbox(self, request):
        id_, config = f"s{next(self._numbers)}", request.config
        self.sandboxes[id_] = pb.PodSandboxStatus(
            id=id_, metadata=config.metadata, labels=config.labels, annotations=config.annotations,
            network=pb.PodSandboxNetworkStatus(ip="10.0.0.9"), runtime_handler=request.runtime_handler,
        )  # fmt: skip
        self.tell(id_)
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
        for id_ in [container for container in self.containers if self.inside[container] == request.pod_sandbox_id]:
            del self.containers[id_]
        return pb.RemovePodSandboxResponse()

    def create_container(self, request):
        id_, config = f"c{next(self._numbers)}", request.config
        self.inside[id_], self.configs[config.metadata.name] = request.pod_sandbox_id, config
        self.containers[id_] = pb.ContainerStatus(
            id=id_, metadata=config.metadata, state=pb.CONTAINER_CREATED, labels=config.labels,
            annotations=config.annotations, image=config.image,
            log_path=f"{request.sandbox_config.log_directory}/{config.log_path}",
        )  # fmt: skip
        return pb.CreateContainerResponse(container_id=id_)

    def start_container(self, request):
        self.containers[request.container_id].state = pb.CONTAINER_RUNNING
        return pb.StartContainerResponse()

    def reopen_container_log(self, request):
        if request.container_id not in self.containers:
            raise NotFound("gone")
        Path(self.containers[request.container_id].log_path).touch()
        return pb.ReopenContainerLogResponse()

    def update_container_resources(self, request):
        self.updates.append((self.containers[request.container_id].metadata.name, request.linux))
        return pb.UpdateContainerResourcesResponse()

    def update_pod_sandbox_resources(self, request):
        self.sandbox_updates.append(request)
        return pb.UpdatePodSandboxResourcesResponse()

    def stop_container(self, request):
        self.graces.append(request.timeout)
        if request.container_id not in self.containers:
            raise NotFound("gone")
        self.containers[request.container_id].state = pb.CONTAINER_EXITED
        return pb.StopContainerResponse()

    def remove_container(self, request):
        self.containers.pop(request.container_id, None)
        return pb.RemoveContainerResponse()


class Wire:
    """HTTP of a client, unless it is `down`."""

    def __init__(self, http):
        self._http, self.down = http, False

    async def request(self, *asked, **more):
        if self.down:
            raise ClientError("the API server is down")
        return await self._http.request(*asked, **more)

    async def stream(self, *asked, **more):
        if self.down:
            raise ClientError("the API server is down")
        return await self._http.stream(*asked, **more)


class Line(Client):
    """Counts what a kubelet writes of pods; deletes may be refused first."""

    def __init__(self, http):
        self.wire = Wire(http)
        super().__init__(self.wire)
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
    """`start` and `stop` are the kubelet's: the runtime and the API server stay."""

    def __init__(self, api, kubelets_api, runtime, outside, root, logs):
        self.api, self.line, self.runtime = api, kubelets_api, runtime
        self.outside, self.root, self.logs = outside, root, logs
        self.kubelet, self.task = None, None
        self.plugin_limits = PluginLimits()
        self.pod_limits = PodLimits(unreachable_retry=0.02, fault_retry=0.02, start_retry=0.1, orphan_retry=0.1)
        self.runtime_limits = RuntimeLimits(relist=0.1)
        self.log_settings = LogSettings()
        self.manifests = None

    def start(self, claims=None, eviction=None, **settings):
        settings = KubeletSettings(
            node=NodeSettings(name="n", addresses=("192.0.2.1",)),
            paths=KubeletPaths(root=self.root, logs=self.logs),
            dns=DnsSettings(cluster_servers=("10.96.0.10",), cluster_domain="cluster.local", node=node_dns("")),
            devices=DeviceSettings(**settings),
            claims=claims or ClaimSettings(),
            eviction=eviction or EvictionSettings(),
            pod_limits=self.pod_limits,
            runtime_limits=self.runtime_limits,
            logs=self.log_settings,
            plugin_limits=self.plugin_limits,
            manifests=self.manifests,
            static_limits=StaticLimits(poll=0.1, backoff=(0.05, 0.2)),
        )
        self.kubelet = Kubelet(self.outside, settings)
        self.task = asyncio.create_task(self.kubelet.run())

    async def stop(self):
        await ended(self.task)

    async def make(self, name="p", **spec):
        spec = {"nodeName": "n", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Never"}], **spec}  # fmt: skip
        meta = {"name": name, "namespace": "default"}
        return await self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    async def until(self, condition, name="p", kind=PODS):
        """The first object of which a condition holds; None when it is gone."""
        namespace = "default" if kind.namespaced else ""
        scope = Scope(namespace=namespace, field_selector=f"metadata.name={name}" if kind == PODS else "")
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

    async def event(self, reason, part=""):
        def reported(each):
            return each and each["reason"] == reason and part in each["message"]

        return (await self.until(reported, kind=EVENTS))["message"]


async def ended(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
