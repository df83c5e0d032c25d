"""The RuntimeService of CRI. Calls that are not in its table of handlers are Unimplemented."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from podwire import __version__
from podwire.interfaces import Clock
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri.methods import INVALID_NETWORK, NETWORK_VALID
from podwire.protocols.grpc_methods import Handler, UnaryHandler
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument
from podwire.runtime.containers.lifecycle import Containers
from podwire.runtime.cri import metrics, statuses
from podwire.runtime.cri.errors import translate_errors
from podwire.runtime.cri.events import Events
from podwire.runtime.cri.stats import Stats
from podwire.runtime.ports import Network
from podwire.runtime.sandboxes.lifecycle import Sandboxes
from podwire.runtime.sandboxes.sandbox import Sandbox
from podwire.runtime.streaming.exec import ExecService
from podwire.runtime.streaming.portforward import PortForwardService

_log = logging.getLogger("podwire.runtime")

NAME = "podwire"


@dataclass(frozen=True, slots=True)
class RuntimeService:
    """Handlers by the names of the calls."""

    sandboxes: Sandboxes
    containers: Containers
    exec_service: ExecService
    port_forward_service: PortForwardService
    stats: Stats
    metrics: metrics.Metrics
    network: Network
    events: Events
    clock: Clock
    features: pb.RuntimeHandlerFeatures = field(default_factory=pb.RuntimeHandlerFeatures)
    """Optional features of this kernel and OCI runtime."""

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, UnaryHandler] = {
            "Version": self.version,
            "Status": self.status,
            "RuntimeConfig": self.runtime_config,
            "UpdateRuntimeConfig": self.update_runtime_config,
            "RunPodSandbox": self.run_pod_sandbox,
            "UpdatePodSandboxResources": self.update_pod_sandbox_resources,
            "StopPodSandbox": self.stop_pod_sandbox,
            "RemovePodSandbox": self.remove_pod_sandbox,
            "PodSandboxStatus": self.pod_sandbox_status,
            "ListPodSandbox": self.list_pod_sandbox,
            "CreateContainer": self.create_container,
            "StartContainer": self.start_container,
            "StopContainer": self.stop_container,
            "RemoveContainer": self.remove_container,
            "ContainerStatus": self.container_status,
            "ListContainers": self.list_containers,
            "UpdateContainerResources": self.update_container_resources,
            "ReopenContainerLog": self.reopen_container_log,
            "ExecSync": self.exec_sync,
            "Exec": self.exec,
            "Attach": self.attach,
            "PortForward": self.port_forward,
            "ContainerStats": self.container_stats,
            "ListContainerStats": self.list_container_stats,
            "PodSandboxStats": self.pod_sandbox_stats,
            "ListPodSandboxStats": self.list_pod_sandbox_stats,
            "ListMetricDescriptors": self.list_metric_descriptors,
            "ListPodSandboxMetrics": self.list_pod_sandbox_metrics,
        }
        wrapped = {name: translate_errors(handler) for name, handler in handlers.items()}
        return {**wrapped, "GetContainerEvents": self.get_container_events}

    def describe(self, sandbox: Sandbox) -> tuple[pb.PodSandboxStatus, list[pb.ContainerStatus]]:
        """Returns a pod as events show it."""
        containers = [statuses.container_status(container) for container in self.containers.of(sandbox.id)]
        return statuses.sandbox_status(sandbox), containers

    async def version(self, _request: pb.VersionRequest) -> pb.VersionResponse:
        return pb.VersionResponse(
            version="0.1.0", runtime_name=NAME, runtime_version=__version__, runtime_api_version="v1"
        )

    async def status(self, _request: pb.StatusRequest) -> pb.StatusResponse:
        not_ready = self.network.not_ready_reason()
        network = pb.RuntimeCondition(type="NetworkReady", status=not not_ready)
        invalid = self.network.invalid_configurations()
        if not_ready:
            network.reason, network.message = "NetworkPluginNotReady", not_ready
        if invalid and invalid not in not_ready:
            network.reason = network.reason or INVALID_NETWORK
            network.message = "; ".join(filter(None, (network.message, invalid)))
        handlers = [pb.RuntimeHandler(name=name, features=self.features) for name in ("", NAME)]
        response = pb.StatusResponse(runtime_handlers=handlers)
        response.status.conditions.extend([pb.RuntimeCondition(type="RuntimeReady", status=True), network])
        if invalid:
            configured = pb.RuntimeCondition(type=NETWORK_VALID, status=False, reason=INVALID_NETWORK, message=invalid)
            response.status.conditions.append(configured)
        if lost := self.sandboxes.lost.message():
            records = pb.RuntimeCondition(type="RecordsIntact", status=False, reason="RecordsLost", message=lost)
            response.status.conditions.append(records)
        response.features.supplemental_groups_policy = True
        return response

    async def runtime_config(self, _request: pb.RuntimeConfigRequest) -> pb.RuntimeConfigResponse:
        response = pb.RuntimeConfigResponse()
        response.linux.cgroup_driver = pb.CGROUPFS
        return response

    async def update_runtime_config(self, _request: pb.UpdateRuntimeConfigRequest) -> pb.UpdateRuntimeConfigResponse:
        """Ignores the pod CIDR: it is in the network's own configuration here."""
        return pb.UpdateRuntimeConfigResponse()

    async def run_pod_sandbox(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        return pb.RunPodSandboxResponse(pod_sandbox_id=await self.sandboxes.run(request))

    async def update_pod_sandbox_resources(
        self, request: pb.UpdatePodSandboxResourcesRequest
    ) -> pb.UpdatePodSandboxResourcesResponse:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        await self.sandboxes.update_resources(sandbox, request)
        await self.containers.limit_pod(sandbox)
        return pb.UpdatePodSandboxResourcesResponse()

    async def stop_pod_sandbox(self, request: pb.StopPodSandboxRequest) -> pb.StopPodSandboxResponse:
        """Stops the containers, then the sandbox; idempotent."""
        sandbox = self.sandboxes.find(request.pod_sandbox_id)
        if sandbox is not None:
            await self.sandboxes.stop(sandbox, partial(self.containers.stop_all, sandbox))
        return pb.StopPodSandboxResponse()

    async def finish_stops(self) -> None:
        """After a start: releases the network of sandboxes that were being stopped, or did not survive a reboot.

        The kubelet sees that such a sandbox is not ready, and may have no reason to stop it again.
        """
        unfinished = [sandbox for sandbox in self.sandboxes if not sandbox.ready and sandbox.record.attached]
        stops = (self.sandboxes.stop(sandbox, partial(self.containers.stop_all, sandbox)) for sandbox in unfinished)
        for sandbox, outcome in zip(unfinished, await asyncio.gather(*stops, return_exceptions=True), strict=True):
            if isinstance(outcome, Exception):
                fields = {"sandbox": sandbox.id, "error": str(outcome)}
                _log.warning("cannot stop sandbox completely", extra=fields)

    async def remove_pod_sandbox(self, request: pb.RemovePodSandboxRequest) -> pb.RemovePodSandboxResponse:
        """Stops the sandbox if it is not stopped, and removes it with its containers; idempotent."""
        sandbox = self.sandboxes.find(request.pod_sandbox_id)
        if sandbox is not None:
            await self.sandboxes.stop(sandbox, partial(self.containers.stop_all, sandbox))
            for container in self.containers.of(sandbox.id):
                await self.containers.remove(container)
            await self.sandboxes.remove(sandbox)
        return pb.RemovePodSandboxResponse()

    async def pod_sandbox_status(self, request: pb.PodSandboxStatusRequest) -> pb.PodSandboxStatusResponse:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        status, containers = self.describe(sandbox)
        now = int(self.clock.wall() * 1e9)
        response = pb.PodSandboxStatusResponse(status=status, containers_statuses=containers, timestamp=now)
        if request.verbose:
            response.info["netns"] = sandbox.record.network
            if report := self.network.check_report(sandbox.id):
                response.info["networkCheck"] = report
        return response

    async def list_pod_sandbox(self, request: pb.ListPodSandboxRequest) -> pb.ListPodSandboxResponse:
        sandboxes = statuses.filter_sandboxes(self.sandboxes, request.filter)
        return pb.ListPodSandboxResponse(items=[statuses.sandbox_row(sandbox) for sandbox in sandboxes])

    async def create_container(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        return pb.CreateContainerResponse(container_id=await self.containers.create(request))

    async def start_container(self, request: pb.StartContainerRequest) -> pb.StartContainerResponse:
        await self.containers.start(self.containers.get(request.container_id))
        return pb.StartContainerResponse()

    async def stop_container(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        if request.timeout < 0:
            raise InvalidArgument(f"timeout: {request.timeout} is negative")
        container = self.containers.find(request.container_id)
        if container is not None:
            await self.containers.stop(container, float(request.timeout))
        return pb.StopContainerResponse()

    async def remove_container(self, request: pb.RemoveContainerRequest) -> pb.RemoveContainerResponse:
        container = self.containers.find(request.container_id)
        if container is not None:
            await self.containers.remove(container)
        return pb.RemoveContainerResponse()

    async def container_status(self, request: pb.ContainerStatusRequest) -> pb.ContainerStatusResponse:
        container = self.containers.get(request.container_id)
        response = pb.ContainerStatusResponse(status=statuses.container_status(container))
        if request.verbose:
            response.info["pid"] = str(container.record.pid)
            about = {"sandboxID": container.record.sandbox_id, "pid": container.record.pid}
            response.info["info"] = json.dumps(about)  # as containerd: `crictl inspect` templates use .info.pid
        return response

    async def list_containers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        containers = statuses.filter_containers(self.containers, request.filter)
        return pb.ListContainersResponse(containers=[statuses.container_row(container) for container in containers])

    async def update_container_resources(
        self, request: pb.UpdateContainerResourcesRequest
    ) -> pb.UpdateContainerResourcesResponse:
        await self.containers.update_resources(self.containers.get(request.container_id), request.linux)
        return pb.UpdateContainerResourcesResponse()

    async def reopen_container_log(self, request: pb.ReopenContainerLogRequest) -> pb.ReopenContainerLogResponse:
        container = self.containers.get(request.container_id)
        if not container.running:
            raise FailedPrecondition(f"container {container.id} is not running")
        await self.containers.reopen_log(container)
        return pb.ReopenContainerLogResponse()

    async def exec_sync(self, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
        container = self.containers.get(request.container_id)
        output = await self.exec_service.run(container, list(request.cmd), float(request.timeout))
        return pb.ExecSyncResponse(stdout=output.stdout, stderr=output.stderr, exit_code=output.code)

    async def exec(self, request: pb.ExecRequest) -> pb.ExecResponse:
        container = self.containers.get(request.container_id)
        return pb.ExecResponse(url=self.exec_service.exec_url(container, request))

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        container = self.containers.get(request.container_id)
        return pb.AttachResponse(url=self.exec_service.attach_url(container, request))

    async def port_forward(self, request: pb.PortForwardRequest) -> pb.PortForwardResponse:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        return pb.PortForwardResponse(url=self.port_forward_service.url(sandbox, request))

    async def container_stats(self, request: pb.ContainerStatsRequest) -> pb.ContainerStatsResponse:
        container = self.containers.get(request.container_id)
        return pb.ContainerStatsResponse(stats=await asyncio.to_thread(self.stats.container, container))

    async def list_container_stats(self, request: pb.ListContainerStatsRequest) -> pb.ListContainerStatsResponse:
        asked = request.filter
        filter_ = pb.ContainerFilter(
            id=asked.id, pod_sandbox_id=asked.pod_sandbox_id, label_selector=dict(asked.label_selector)
        )
        containers = statuses.filter_containers(self.containers, filter_)
        running = [container for container in containers if container.running]
        stats = await asyncio.to_thread(lambda: [self.stats.container(container) for container in running])
        return pb.ListContainerStatsResponse(stats=stats)

    async def pod_sandbox_stats(self, request: pb.PodSandboxStatsRequest) -> pb.PodSandboxStatsResponse:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        containers = self.containers.of(sandbox.id)
        return pb.PodSandboxStatsResponse(stats=await asyncio.to_thread(self.stats.sandbox, sandbox, containers))

    async def list_pod_sandbox_stats(self, request: pb.ListPodSandboxStatsRequest) -> pb.ListPodSandboxStatsResponse:
        filter_ = pb.PodSandboxFilter(id=request.filter.id, label_selector=dict(request.filter.label_selector))
        sandboxes = [sandbox for sandbox in statuses.filter_sandboxes(self.sandboxes, filter_) if sandbox.ready]
        stats = await asyncio.to_thread(
            lambda: [self.stats.sandbox(sandbox, self.containers.of(sandbox.id)) for sandbox in sandboxes]
        )
        return pb.ListPodSandboxStatsResponse(stats=stats)

    async def list_metric_descriptors(
        self, _request: pb.ListMetricDescriptorsRequest
    ) -> pb.ListMetricDescriptorsResponse:
        return pb.ListMetricDescriptorsResponse(descriptors=metrics.descriptors())

    async def list_pod_sandbox_metrics(
        self, _request: pb.ListPodSandboxMetricsRequest
    ) -> pb.ListPodSandboxMetricsResponse:
        pods = [(sandbox, self.containers.of(sandbox.id)) for sandbox in self.sandboxes if sandbox.ready]
        rows = await asyncio.to_thread(lambda: [self.metrics.sandbox(*pod) for pod in pods])
        return pb.ListPodSandboxMetricsResponse(pod_metrics=rows)

    def get_container_events(self, _request: pb.GetEventsRequest) -> AsyncIterator[pb.ContainerEventResponse]:
        return self.events.listen()
