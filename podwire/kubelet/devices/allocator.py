"""Has plugins allocate the devices of a container right before it is created, and records their responses."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.kubelet.devices import pod_devices
from podwire.kubelet.devices.checkpoint import DeviceCheckpoint, NotWritten
from podwire.kubelet.devices.errors import AllocationFailed
from podwire.kubelet.devices.plugin import Plugin
from podwire.kubelet.devices.pod_devices import AllocatedDevices
from podwire.kubelet.devices.run_options import DeviceRunOptions, check, run_options
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.grpc_status import RpcError

log = logging.getLogger(__name__)

ALLOCATED = declare("devices.allocated", "a plugin has allocated a container's devices; that is not on disk yet")


class ContainerAllocator:
    """`plugin` returns the plugin of a resource, or raises DevicesNotReady."""

    def __init__(self, checkpoint: DeviceCheckpoint, plugin: Callable[[str], Plugin]) -> None:
        self._checkpoint = checkpoint
        self._plugin = plugin
        self._unwritten: set[str] = set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Write changed records until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            uids, self._unwritten = self._unwritten, set()
            for uid in uids:
                try:
                    await self._checkpoint.write(uid)
                except NotWritten as error:
                    log.warning("cannot record allocated devices", extra={"uid": uid, "error": str(error)})

    def write_later(self, uid: str) -> None:
        self._unwritten.add(uid)
        self._changed.set()

    async def allocate(self, uid: str, container: str, moment: str) -> DeviceRunOptions:
        """Options of a container. A plugin that has allocated at this moment (the id of the sandbox) is not asked
        again; one that requires PreStartContainer is asked before each start. Raises DevicesNotReady."""
        devices = self._devices(uid, container)
        responses = [await self._response(uid, container, resource, moment) for resource in sorted(devices)]
        for resource in sorted(devices):
            await self._pre_start(self._devices(uid, container).get(resource), resource)
        ids = {resource: allocated.ids for resource, allocated in devices.items()}
        return run_options(responses, pod_devices.annotation(ids))

    async def allocate_again(self, uid: str, container: str, moment: str) -> None:
        """Ask plugins to allocate, although they may have done so before. Raises DevicesNotReady."""
        for resource, devices in sorted(self._devices(uid, container).items()):
            await self._ask(uid, container, resource, devices, moment)

    def _devices(self, uid: str, container: str) -> Mapping[str, AllocatedDevices]:
        pod = self._checkpoint.get(uid)
        return pod.containers.get(container, {}) if pod is not None else {}

    async def _response(self, uid: str, container: str, resource: str, moment: str) -> pb.ContainerAllocateResponse:
        devices = self._devices(uid, container)[resource]
        if devices.allocated == moment:
            return pb.ContainerAllocateResponse.FromString(devices.response)
        return await self._ask(uid, container, resource, devices, moment)

    async def _ask(
        self, uid: str, container: str, resource: str, devices: AllocatedDevices, moment: str
    ) -> pb.ContainerAllocateResponse:
        plugin = self._plugin(resource)
        try:
            response = await plugin.allocate(devices.ids)
            check(response)
        except RpcError as error:
            raise AllocationFailed(f"{_named(plugin)}: {_text(error)}") from error
        failpoint(ALLOCATED)
        required, data = plugin.options.pre_start_required, response.SerializeToString()
        allocated = msgspec.structs.replace(devices, allocated=moment, response=data, pre_start=required)
        if (pod := self._checkpoint.get(uid)) is not None:
            # Written in the background: if a crash loses it, the plugin is asked once more.
            self._checkpoint.note(pod.with_devices(container, resource, allocated))
            self.write_later(uid)
        return response

    async def _pre_start(self, devices: AllocatedDevices | None, resource: str) -> None:
        if devices is None or not devices.pre_start:
            return
        plugin = self._plugin(resource)
        try:
            await plugin.pre_start(devices.ids)
        except RpcError as error:
            raise AllocationFailed(f"{_named(plugin)}: PreStartContainer: {_text(error)}") from error


def _named(plugin: Plugin) -> str:
    return f"device plugin of {plugin.resource} at {plugin.socket}"


def _text(error: RpcError) -> str:
    return str(error) or error.name
