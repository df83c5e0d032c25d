"""A registered device plugin: calls to it and its ListAndWatch stream, until it is gone."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.kubelet.devices.pool import Device
from podwire.kubelet.ports import Peer, PluginSockets
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.deviceplugin import methods
from podwire.protocols.grpc_status import FailedPrecondition, RpcError, Unavailable, Unimplemented

log = logging.getLogger(__name__)

DIAL_PAUSE = 0.02
HEALTHY = "Healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Timeouts of a plugin in seconds: until it listens, and for each call."""

    dial: float = 10.0
    options: float = 10.0
    prefer: float = 2.0
    """After it, devices are selected without the plugin's preference."""
    allocate: float = 30.0
    pre_start: float = 30.0


class Plugin:
    """`listed` is called with every list of devices; `run` ends when the plugin is gone."""

    def __init__(
        self,
        sockets: PluginSockets,
        limits: Limits,
        resource: str,
        socket: Path,
        options: pb.DevicePluginOptions,
        listed: Callable[["Plugin", dict[str, Device]], None],
    ) -> None:
        self._sockets = sockets
        self._limits = limits
        self._listed = listed
        self._peer: Peer | None = None
        self.resource = resource
        self.socket = socket
        self.options = options
        self.gone = False

    async def run(self) -> None:
        try:
            async with self._sockets.connect(self.socket) as self._peer:
                self.options = await self._options(self._peer)
                async with contextlib.aclosing(self._peer.stream(methods.LIST_AND_WATCH, pb.Empty())) as lists:
                    async for message in lists:
                        self._listed(self, read(message.devices, self.resource))
                log.info("device plugin ended its ListAndWatch stream", extra={"resource": self.resource})
        except RpcError as error:
            log.info("device plugin is gone", extra={"resource": self.resource, "error": str(error)})
        finally:
            self.gone = True
            self._peer = None

    async def _options(self, peer: Peer) -> pb.DevicePluginOptions:
        """GetDevicePluginOptions overrides the options of the registration, if the plugin implements it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._limits.dial
        while True:
            try:
                return await peer.call(methods.GET_DEVICE_PLUGIN_OPTIONS, pb.Empty(), timeout=self._limits.options)
            except Unimplemented:
                return self.options
            except Unavailable:
                if loop.time() > until:
                    raise
                await asyncio.sleep(DIAL_PAUSE)

    async def prefer(self, available: Iterable[str], must: Sequence[str], size: int) -> list[str]:
        """The devices that the plugin prefers. Raises RpcError."""
        query = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[query])
        answer = await self._connected().call(methods.GET_PREFERRED_ALLOCATION, request, timeout=self._limits.prefer)
        return [id_ for response in answer.container_responses[:1] for id_ in response.deviceIDs]

    async def allocate(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        """Options of a container that gets these devices. Raises RpcError."""
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        answer = await self._connected().call(methods.ALLOCATE, request, timeout=self._limits.allocate)
        if (count := len(answer.container_responses)) != 1:
            raise FailedPrecondition(f"Allocate: {count} container_responses for 1 container")
        return answer.container_responses[0]

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Raises RpcError."""
        request = pb.PreStartContainerRequest(devices_ids=ids)
        await self._connected().call(methods.PRE_START_CONTAINER, request, timeout=self._limits.pre_start)

    def _connected(self) -> Peer:
        if self._peer is None:
            raise Unavailable("the device plugin is not connected")
        return self._peer


def read(devices: Iterable[pb.Device], resource: str) -> dict[str, Device]:
    """Devices by id; of two with the same id the last one counts, those without an id are left out."""
    by_id = {}
    nameless = 0
    for device in devices:
        if not device.ID:
            nameless += 1
            continue
        nodes = frozenset(node.ID for node in device.topology.nodes) if device.HasField("topology") else frozenset()
        by_id[device.ID] = Device(device.ID, device.health == HEALTHY, nodes)
    if nameless:
        log.warning("ignored devices without ID", extra={"resource": resource, "count": nameless})
    return by_id
