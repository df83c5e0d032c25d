"""A device plugin for the extended resource `net.podwire.dev/chardev`: character devices of claimed devices.

A unit of the resource is a permission for one container. The claim that is prepared for its pod decides which character
devices the container gets; without a claim Allocate fails.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.claims.allocations import Allocation
from podwire.dradriver.claims.character_devices import character_devices, stat_device
from podwire.dradriver.dependencies import allocations_in
from podwire.dradriver.names import CHARACTER_DEVICES
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.deviceplugin import methods
from podwire.protocols.grpc_methods import Handler
from podwire.protocols.grpc_status import FailedPrecondition, RpcError, Unavailable
from podwire.protocols.podresources import podresources_pb2 as resources
from podwire.protocols.registration import methods as registering
from podwire.protocols.registration import registration_pb2 as registering_pb

UNITS = 256
"""More than the containers that a node runs."""
HEALTHY = "Healthy"
VARIABLE = "PODWIRE_CHARACTER_DEVICES"


class PodResources(Protocol):
    """The kubelet's pod-resources API."""

    async def list(self) -> resources.ListPodResourcesResponse:
        """Raises RpcError."""
        ...


class CharacterDevices:
    def __init__(self, attachments: Attachments, kubelet: PodResources, endpoint: Path) -> None:
        self._attachments, self._kubelet, self._endpoint = attachments, kubelet, endpoint
        self._ended = asyncio.Event()
        self.lost = asyncio.Event()
        """Set whenever a kubelet's ListAndWatch ends."""

    @property
    def registration(self) -> Mapping[str, Handler]:
        """Handlers of the socket in plugins_registry."""
        return {
            registering.GET_INFO.name: self._get_info,
            registering.NOTIFY_REGISTRATION_STATUS.name: self._notified,
        }

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "GetDevicePluginOptions": self._get_options,
            "ListAndWatch": self._list_and_watch,
            "Allocate": self._handle_allocate,
            "PreStartContainer": self._pre_start,
        }

    async def _get_info(self, _request: registering_pb.InfoRequest) -> registering_pb.PluginInfo:
        return registering_pb.PluginInfo(
            type=registering.DEVICE_PLUGIN,
            name=CHARACTER_DEVICES,
            endpoint=str(self._endpoint),
            supported_versions=[methods.VERSION],
        )

    async def _notified(self, _request: registering_pb.RegistrationStatus) -> registering_pb.RegistrationStatusResponse:
        return registering_pb.RegistrationStatusResponse()

    async def _get_options(self, _request: pb.Empty) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    async def _list_and_watch(self, _request: pb.Empty) -> AsyncIterator[pb.ListAndWatchResponse]:
        try:
            yield pb.ListAndWatchResponse(devices=[pb.Device(ID=unit_id(i), health=HEALTHY) for i in range(UNITS)])
            await self._ended.wait()  # the list never changes
        finally:
            self.lost.set()

    async def _pre_start(self, _request: pb.PreStartContainerRequest) -> pb.PreStartContainerResponse:
        return pb.PreStartContainerResponse()

    async def _handle_allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        return await self.allocate(request)

    async def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        """Raises FailedPrecondition, Unavailable."""
        ids = [list(container.devices_ids) for container in request.container_requests]
        return pb.AllocateResponse(container_responses=[await self._allocate_one(of_one) for of_one in ids])

    async def _allocate_one(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        try:
            listed = await self._kubelet.list()
        except RpcError as error:
            reason = f"cannot ask the kubelet for the pod of {', '.join(ids)}: {error}"
            raise Unavailable(f"{CHARACTER_DEVICES}: {reason}") from error
        namespace, name = holder(listed, ids)
        allocations = [
            allocation
            for allocation in allocations_in(self._attachments.records())
            if (allocation.pod.namespace, allocation.pod.name) == (namespace, name)
        ]
        if not allocations:
            reason = f"no claim of pod {namespace}/{name} is prepared by this driver; add one to spec.resourceClaims"
            raise FailedPrecondition(f"{CHARACTER_DEVICES}: {reason}")
        return await asyncio.to_thread(self.answer, allocations)

    def answer(self, allocations: Sequence[Allocation]) -> pb.ContainerAllocateResponse:
        """Returns what one container gets. Raises FailedPrecondition. Blocks."""
        return answer(allocations)


def unit_id(number: int) -> str:
    return f"chardev-{number}"


def holder(listed: resources.ListPodResourcesResponse, ids: Sequence[str]) -> tuple[str, str]:
    """Returns namespace and name of the pod that holds units. Raises FailedPrecondition."""
    for pod in listed.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                if devices.resource_name == CHARACTER_DEVICES and set(ids) & set(devices.device_ids):
                    return pod.namespace, pod.name
    reason = f"the kubelet has no pod with {', '.join(ids)} yet; it allocates before it knows what a pod claimed"
    raise FailedPrecondition(f"{CHARACTER_DEVICES}: {reason}")


def answer(allocations: Sequence[Allocation]) -> pb.ContainerAllocateResponse:
    """Returns what one container gets. Raises FailedPrecondition. Blocks."""
    paths = character_devices(allocations)
    if not paths:
        named = ", ".join(allocation.device.name for allocation in allocations)
        raise FailedPrecondition(f"{CHARACTER_DEVICES}: what the pod claimed ({named}) has no character devices")
    for path in paths:
        stat_device(path)
    specs = [pb.DeviceSpec(container_path=path, host_path=path, permissions="rw") for path in paths]
    return pb.ContainerAllocateResponse(envs={VARIABLE: ",".join(paths)}, devices=specs)
