"""One pool as a DevicePlugin service."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from podwire.deviceplugin.cdi import cdi_name
from podwire.deviceplugin.config import Pool as Settings
from podwire.deviceplugin.config import variable
from podwire.deviceplugin.devices import Device, Handed, preferred
from podwire.deviceplugin.ports import Unusable
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.deviceplugin import methods
from podwire.protocols.grpc_methods import Handler
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument, Unavailable

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

Allocate = Callable[[str, Sequence[str]], Awaitable[Sequence[Handed]]]
"""Hands out devices of a pool. Raises Unusable."""


class PoolService:
    """Sends the same list to every stream, built once for each change."""

    def __init__(self, pool: Settings, allocate: Allocate) -> None:
        self.pool = pool
        self._allocate = allocate
        self._devices: tuple[Device, ...] = ()
        self._message = pb.ListAndWatchResponse()
        self._changed = asyncio.Event()

    @property
    def endpoint(self) -> str:
        """The name of its socket, in the kubelet's directory."""
        return f"podwire-{self.pool.name}.sock"

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "GetDevicePluginOptions": self._get_options,
            "ListAndWatch": self._list_and_watch,
            "GetPreferredAllocation": self._get_preferred,
            "Allocate": self._answer_allocate,
            "PreStartContainer": self._pre_start,
        }

    def registration(self) -> pb.RegisterRequest:
        return pb.RegisterRequest(
            version=methods.VERSION,
            endpoint=self.endpoint,
            resource_name=self.pool.resource,
            options=self._options(),
        )

    @property
    def prefers(self) -> bool:
        """Whether it matters which devices are allocated together; if not, kubelets need not ask."""
        return len({device.numa for device in self._devices}) > 1

    def _options(self) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions(get_preferred_allocation_available=self.prefers)

    def update(self, devices: tuple[Device, ...]) -> None:
        if devices == self._devices:
            return
        self._devices = devices
        self._message = pb.ListAndWatchResponse(devices=map(_message, devices))
        self._changed.set()
        self._changed = asyncio.Event()

    async def _get_options(self, _request: pb.Empty) -> pb.DevicePluginOptions:
        return self._options()

    async def _list_and_watch(self, _request: pb.Empty) -> AsyncIterator[pb.ListAndWatchResponse]:
        while True:
            changed = self._changed
            yield self._message
            await changed.wait()

    async def _get_preferred(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
        numa = {device.id: device.numa for device in self._devices}
        answers = [
            preferred(
                container_request.available_deviceIDs,
                container_request.must_include_deviceIDs,
                container_request.allocation_size,
                numa,
            )
            for container_request in request.container_requests
        ]
        made = [pb.ContainerPreferredAllocationResponse(deviceIDs=answer_ids) for answer_ids in answers]
        return pb.PreferredAllocationResponse(container_responses=made)

    async def _answer_allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        asked = [tuple(container_request.devices_ids) for container_request in request.container_requests]
        everything = [device for ids in asked for device in ids]
        for device in everything:
            if everything.count(device) > 1:
                raise InvalidArgument(f"{self.pool.resource}: {device} is requested twice")
        try:
            handed = dict(zip(everything, await self._allocate(self.pool.name, everything), strict=True))
        except Unusable as error:
            raise FailedPrecondition(f"{self.pool.resource}: {error}") from error
        except OSError as error:  # a device without a record is not handed out
            raise Unavailable(f"{self.pool.resource}: {error}") from error
        answers = [answer(self.pool, {device: handed[device] for device in ids}) for ids in asked]
        return pb.AllocateResponse(container_responses=answers)

    async def _pre_start(self, _request: pb.PreStartContainerRequest) -> pb.PreStartContainerResponse:
        return pb.PreStartContainerResponse()


def answer(pool: Settings, handed: Mapping[str, Handed]) -> pb.ContainerAllocateResponse:
    """Returns what one container gets."""
    name = variable(pool.name)
    values = list(dict.fromkeys(device.value for device in handed.values()))
    info = [dict(device.info) for device in handed.values()]
    envs = {name: ",".join(values), f"{name}_INFO": json.dumps(info, separators=(",", ":"))}
    if pool.cdi:
        names = [pb.CDIDevice(name=cdi_name(pool.name, device)) for device in handed]
        return pb.ContainerAllocateResponse(envs=envs, cdi_devices=names)
    files = {path: device.permissions for device in handed.values() for path in device.files}
    specs = [pb.DeviceSpec(container_path=path, host_path=path, permissions=files[path]) for path in files]
    return pb.ContainerAllocateResponse(envs=envs, devices=specs)


def _message(device: Device) -> pb.Device:
    message = pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    if device.numa is not None:
        message.topology.nodes.add(ID=device.numa)
    return message
