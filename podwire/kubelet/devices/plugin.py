"""One device plugin that has registered: the conversation with it, from the first call until it goes."""

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
    """Seconds that a plugin may take: until it listens, and for each of its calls."""

    dial: float = 10.0
    options: float = 10.0
    prefer: float = 2.0
    """Without its preference, we choose ourselves."""
    allocate: float = 30.0
    pre_start: float = 30.0


class Plugin:
    """`listed` is told every list of devices; `run` ends when the plugin has gone."""

    def __init__(
        self,
        door: PluginSockets,
        limits: Limits,
        resource: str,
        socket: Path,
        options: pb.DevicePluginOptions,
        listed: Callable[["Plugin", dict[str, Device]], None],
    ) -> None:
        self._door = door
        self._limits = limits
        self._listed = listed
        self._peer: Peer | None = None
        self.resource = resource
        self.socket = socket
        self.options = options
        self.gone = False

    async def run(self) -> None:
        try:
            async with self._door.connect(self.socket) as self._peer:
                self.options = await self._options(self._peer)
                async with contextlib.aclosing(self._peer.stream(methods.LIST_AND_WATCH, pb.Empty())) as lists:
                    async for message in lists:
                        self._listed(self, read(message.devices, self.resource))
                log.info("device plugin ended its list", extra={"resource": self.resource})
        except RpcError as error:
            log.info("device plugin gone", extra={"resource": self.resource, "why": str(error)})
        finally:
            self.gone = True
            self._peer = None

    async def _options(self, peer: Peer) -> pb.DevicePluginOptions:
        """What it says when asked goes before what it said when it registered; not everybody can be asked."""
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
        """Which of these it would give. RpcError."""
        wish = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[wish])
        answer = await self._asked().call(methods.GET_PREFERRED_ALLOCATION, request, timeout=self._limits.prefer)
        return [each for response in answer.container_responses[:1] for each in response.deviceIDs]

    async def allocate(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        """What a container that gets these devices needs. RpcError."""
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        answer = await self._asked().call(methods.ALLOCATE, request, timeout=self._limits.allocate)
        if (count := len(answer.container_responses)) != 1:
            raise FailedPrecondition(f"Allocate: {count} container_responses for 1 container")
        return answer.container_responses[0]

    async def pre_start(self, ids: Sequence[str]) -> None:
        """RpcError."""
        request = pb.PreStartContainerRequest(devices_ids=ids)
        await self._asked().call(methods.PRE_START_CONTAINER, request, timeout=self._limits.pre_start)

    def _asked(self) -> Peer:
        if self._peer is None:
            raise Unavailable("it is not connected")
        return self._peer


def read(devices: Iterable[pb.Device], resource: str) -> dict[str, Device]:
    """By id. Told twice, a device is the one told last; one without an id is none."""
    found = {}
    nameless = 0
    for each in devices:
        if not each.ID:
            nameless += 1
            continue
        nodes = frozenset(node.ID for node in each.topology.nodes) if each.HasField("topology") else frozenset()
        found[each.ID] = Device(each.ID, each.health == HEALTHY, nodes)
    if nameless:
        log.warning("devices without an ID are left out", extra={"resource": resource, "count": nameless})
    return found
