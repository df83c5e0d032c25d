"""Has plugins allocate what a container holds, right before it is made, and remembers what they answered."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.kubelet.devices import records
from podwire.kubelet.devices.checkpoint import DeviceCheckpoint, NotWritten
from podwire.kubelet.devices.errors import AllocationFailed
from podwire.kubelet.devices.plugin import Plugin
from podwire.kubelet.devices.records import AllocatedDevices
from podwire.kubelet.devices.run_options import DeviceRunOptions, check, given
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.grpc_status import RpcError

log = logging.getLogger(__name__)

ALLOCATED = declare("devices.allocated", "a plugin has allocated a container's devices; that is not on disk yet")


class ContainerAllocator:
    """`plugin` finds the one that brings a resource, or raises DevicesNotReady."""

    def __init__(self, ledger: DeviceCheckpoint, plugin: Callable[[str], Plugin]) -> None:
        self._ledger = ledger
        self._plugin = plugin
        self._unwritten: set[str] = set()
        self._noted = asyncio.Event()

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            uids, self._unwritten = self._unwritten, set()
            for uid in uids:
                try:
                    await self._ledger.write(uid)
                except NotWritten as error:
                    log.warning("not written what a plugin allocated", extra={"uid": uid, "why": str(error)})

    def write_later(self, uid: str) -> None:
        self._unwritten.add(uid)
        self._noted.set()

    async def container(self, uid: str, container: str, moment: str) -> DeviceRunOptions:
        """What a container gets. Plugins that have answered at this moment, by the id of the sandbox, are not asked
        again; those that want it are asked before each start. DevicesNotReady."""
        held = self._held(uid, container)
        answers = [await self._answer(uid, container, resource, moment) for resource in sorted(held)]
        for resource in sorted(held):
            await self._pre_start(self._held(uid, container).get(resource), resource)
        return given(answers, records.annotation({resource: each.ids for resource, each in held.items()}))

    async def again(self, uid: str, container: str, moment: str) -> None:
        """Ask, whatever was answered before. DevicesNotReady."""
        for resource, held in sorted(self._held(uid, container).items()):
            await self._ask(uid, container, resource, held, moment)

    def _held(self, uid: str, container: str) -> Mapping[str, AllocatedDevices]:
        record = self._ledger.get(uid)
        return record.containers.get(container, {}) if record is not None else {}

    async def _answer(self, uid: str, container: str, resource: str, moment: str) -> pb.ContainerAllocateResponse:
        held = self._held(uid, container)[resource]
        if held.allocated == moment:
            return pb.ContainerAllocateResponse.FromString(held.response)
        return await self._ask(uid, container, resource, held, moment)

    async def _ask(
        self, uid: str, container: str, resource: str, held: AllocatedDevices, moment: str
    ) -> pb.ContainerAllocateResponse:
        plugin = self._plugin(resource)
        try:
            answer = await plugin.allocate(held.ids)
            check(answer)
        except RpcError as error:
            raise AllocationFailed(f"{_named(plugin)}: {_said(error)}") from error
        failpoint(ALLOCATED)
        wants = plugin.options.pre_start_required
        data = answer.SerializeToString()
        self._note(
            uid,
            container,
            resource,
            msgspec.structs.replace(held, allocated=moment, response=data, pre_start=wants),
        )
        return answer

    def _note(self, uid: str, container: str, resource: str, held: AllocatedDevices) -> None:
        """Written when there is time: should it be lost, the plugin is asked once more."""
        if (record := self._ledger.get(uid)) is not None:
            self._ledger.note(record.with_held(container, resource, held))
            self.write_later(uid)

    async def _pre_start(self, held: AllocatedDevices | None, resource: str) -> None:
        if held is None or not held.pre_start:
            return
        plugin = self._plugin(resource)
        try:
            await plugin.pre_start(held.ids)
        except RpcError as error:
            raise AllocationFailed(f"{_named(plugin)}: PreStartContainer: {_said(error)}") from error


def _named(plugin: Plugin) -> str:
    return f"device plugin of {plugin.resource} at {plugin.socket}"


def _said(error: RpcError) -> str:
    return str(error) or error.name
