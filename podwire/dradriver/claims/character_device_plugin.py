"""The device plugin beside the driver: character devices of what a pod claimed, for the containers that ask for them.

`net.podwire.dev/chardev` is no thing of its own: each of its devices is a place for one container. What that one gets
is decided by the claim that is prepared for its pod; without a claim it is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from podwire.dradriver.claims.allocations import Order
from podwire.dradriver.claims.character_devices import character_devices, look
from podwire.dradriver.kit import Kit, orders_in
from podwire.dradriver.names import CHARACTER_DEVICES
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.deviceplugin import methods
from podwire.protocols.grpc_methods import Handler
from podwire.protocols.grpc_status import FailedPrecondition, RpcError, Unavailable
from podwire.protocols.podresources import podresources_pb2 as resources
from podwire.protocols.registration import methods as registering
from podwire.protocols.registration import registration_pb2 as registering_pb

PLACES = 256
"""More containers than any node runs."""
HEALTHY = "Healthy"
VARIABLE = "PODWIRE_CHARACTER_DEVICES"


class PodResources(Protocol):
    """The kubelet's own view of who has what."""

    async def list(self) -> resources.ListPodResourcesResponse:
        """Raises RpcError."""
        ...


class CharacterDevices:
    def __init__(self, kit: Kit, kubelet: PodResources, endpoint: Path) -> None:
        self._kit, self._kubelet, self._endpoint = kit, kubelet, endpoint
        self._ended = asyncio.Event()
        self.lost = asyncio.Event()
        """Set whenever a kubelet that followed the list does so no longer."""

    @property
    def registration(self) -> Mapping[str, Handler]:
        """As kubelets ask at the socket in plugins_registry."""
        return {
            registering.GET_INFO.name: self._get_info,
            registering.NOTIFY_REGISTRATION_STATUS.name: self._notified,
        }

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "GetDevicePluginOptions": self._get_options,
            "ListAndWatch": self._list_and_watch,
            "Allocate": self._allocate,
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
            yield pb.ListAndWatchResponse(devices=[pb.Device(ID=place(i), health=HEALTHY) for i in range(PLACES)])
            await self._ended.wait()  # nothing ever changes
        finally:
            self.lost.set()

    async def _pre_start(self, _request: pb.PreStartContainerRequest) -> pb.PreStartContainerResponse:
        return pb.PreStartContainerResponse()

    async def _allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        try:
            answers = [await self._one(list(each.devices_ids)) for each in request.container_requests]
        except RpcError:
            self._kit.meter.answered("Allocate", ok=False)
            raise
        self._kit.meter.answered("Allocate", ok=True)
        return pb.AllocateResponse(container_responses=answers)

    async def _one(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        """Raises FailedPrecondition, Unavailable."""
        try:
            told = await self._kubelet.list()
        except RpcError as error:
            raise Unavailable(
                f"{CHARACTER_DEVICES}: the kubelet does not say whose {', '.join(ids)} is: {error}"
            ) from error
        namespace, name = holder(told, ids)
        found = [each for each in self._kit.attachments.records() if _is_of(each.order, namespace, name)]
        orders = orders_in(found)
        if not orders:
            reason = f"no claim of pod {namespace}/{name} is prepared by this driver; add one to spec.resourceClaims"
            raise FailedPrecondition(f"{CHARACTER_DEVICES}: {reason}")
        with self._kit.trace.works(orders[0].pod.uid, "hand out character devices"):
            return await asyncio.to_thread(answer, orders)


def place(number: int) -> str:
    return f"chardev-{number}"


def holder(told: resources.ListPodResourcesResponse, ids: Sequence[str]) -> tuple[str, str]:
    """Namespace and name of the pod that devices are for. Raises FailedPrecondition."""
    wanted = set(ids)
    for pod in told.pod_resources:
        for container in pod.containers:
            for each in container.devices:
                if each.resource_name == CHARACTER_DEVICES and wanted & set(each.device_ids):
                    return pod.namespace, pod.name
    reason = f"the kubelet has no pod with {', '.join(ids)} yet; it allocates before it knows what a pod claimed"
    raise FailedPrecondition(f"{CHARACTER_DEVICES}: {reason}")


def answer(orders: Sequence[Order]) -> pb.ContainerAllocateResponse:
    """What one container gets. Raises FailedPrecondition. Blocks."""
    paths = character_devices(orders)
    if not paths:
        named = ", ".join(each.offered.device for each in orders)
        raise FailedPrecondition(f"{CHARACTER_DEVICES}: what the pod claimed ({named}) has no character devices")
    for each in paths:
        look(each)
    specs = [pb.DeviceSpec(container_path=each, host_path=each, permissions="rw") for each in paths]
    return pb.ContainerAllocateResponse(envs={VARIABLE: ",".join(paths)}, devices=specs)


def _is_of(order: Order, namespace: str, name: str) -> bool:
    return (order.pod.namespace, order.pod.name) == (namespace, name)
