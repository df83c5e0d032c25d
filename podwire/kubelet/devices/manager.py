"""Gives pods their devices: chooses them before a pod's sandbox is made, has plugins allocate them before a container
is, and takes them back when the pod is gone."""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.kubelet.devices import records
from podwire.kubelet.devices.allocator import ContainerAllocator
from podwire.kubelet.devices.checkpoint import DeviceCheckpoint, NotWritten
from podwire.kubelet.devices.errors import DevicesNotReady
from podwire.kubelet.devices.plugin import Plugin
from podwire.kubelet.devices.records import AllocatedDevices, PodDevices
from podwire.kubelet.devices.registration import DevicePluginRegistry
from podwire.kubelet.devices.requests import DeviceRequest, device_requests
from podwire.kubelet.devices.resource import Resource
from podwire.kubelet.devices.run_options import NOTHING, DeviceRunOptions
from podwire.kubelet.devices.selection import NotEnoughDevices, PreferenceQuery, Selection, select_devices
from podwire.kubelet.devices.settings import AT_ADMISSION, DeviceSettings
from podwire.kubelet.devices.topology import BEST_EFFORT
from podwire.kubelet.ports import PluginSockets
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.grpc_status import RpcError

log = logging.getLogger(__name__)

PUBLISH_PAUSES = 0.05, 1.0
"""Between two reports to the Node: the first change is told at once, those that never stop ever more rarely."""

Amounts = Mapping[str, tuple[int, int] | None]
"""By resource: capacity and what of it pods may have; None for one that is gone from this node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told what."""

    node: Callable[[Amounts], None]
    """What this node has."""
    waiting: Callable[[], None]
    """Whoever waits for devices may find some now."""
    holder: Callable[[str, str], None]
    """The pod of that uid holds devices that are not as they were; with a message when they are worse."""


class DeviceManager:
    """`loaded` is set when it is known who holds what: before that nobody may ask."""

    def __init__(self, door: PluginSockets, root: Path, settings: DeviceSettings, listeners: Listeners) -> None:
        self._settings = settings
        self._listeners = listeners
        self._ledger = DeviceCheckpoint(root / "devices")
        self.registrar = DevicePluginRegistry(
            door,
            root / "device-plugins",
            grace=settings.grace,
            limits=settings.limits,
            changed=self._changed,
            know=lambda name: self._ledger.know([name]),
        )
        self._resources = self.registrar.resources
        self._blocked: dict[str, tuple[str, str]] = {}
        """By resource: the pod that has nobody knows which of its devices, and how that came."""
        self._news = asyncio.Event()
        self._allocating = ContainerAllocator(self._ledger, self._plugin)
        self.loaded = asyncio.Event()

    def load(self) -> list[str]:
        """Read who holds what; the uids of which that is not known any more. Blocks."""
        return self._ledger.load()

    def recover(self, uid: str, record: PodDevices | None) -> None:
        """A damaged record is this one, or nothing. Blocks."""
        if record is None:
            self._ledger.discard(uid)
        else:
            self._ledger.restore(record)
            self._allocating.write_later(uid)

    def block(self, uid: str, why: str) -> None:
        """Nothing that plugins brought so far is given to anybody while the pod is there."""
        for each in sorted(self._ledger.resources):
            log.error("devices are not given out", extra={"resource": each, "why": why})
            self._blocked[each] = uid, why

    def ready(self) -> None:
        """All that was there before is known."""
        self.registrar.expect(self._ledger.resources)
        for name, resource in self._resources.items():
            resource.pool.hold(self._ledger.holders(name))
        self._listeners.node(self.amounts())
        self.loaded.set()

    async def run(self) -> None:
        """Work until cancelled."""
        await self.loaded.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.registrar.run(), name="device plugins")
            group.create_task(self._publish(), name="devices of the node")
            group.create_task(self._allocating.run(), name="notes of devices")

    async def _publish(self) -> None:
        pause, longest = PUBLISH_PAUSES
        while True:
            await self._news.wait()
            self._news.clear()
            self._listeners.node(self.amounts())
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest) if self._news.is_set() else PUBLISH_PAUSES[0]

    def amounts(self) -> Amounts:
        return {
            name: (each.pool.capacity, each.pool.allocatable) if each.told else None
            for name, each in self._resources.items()
        }

    @property
    def capacities(self) -> dict[str, int | None]:
        """Of all resources that plugins bring here; None while nobody knows."""
        return {name: each.pool.capacity if each.ready else None for name, each in self._resources.items()}

    @property
    def resources(self) -> Mapping[str, Resource]:
        return self._resources

    @property
    def uids(self) -> set[str]:
        """Pods that have devices, though perhaps nobody knows which."""
        return self._ledger.uids | {uid for uid, _ in self._blocked.values()}

    def held(self, uid: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """By container and resource, the ids that a pod has."""
        record = self._ledger.get(uid)
        containers = record.containers if record is not None else {}
        return {name: {resource: each.ids for resource, each in held.items()} for name, held in containers.items()}

    def annotation(self, uid: str) -> str:
        """For the pod's sandbox; empty when it has no devices."""
        record = self._ledger.get(uid)
        return records.annotation(record.ids()) if record is not None else ""

    def statuses(self, uid: str) -> dict[str, list[dict[str, object]]]:
        """By container, how the devices are that it has, as its status shows that."""
        return {
            name: [
                {"name": resource, "resources": self._resources[resource].healths(ids)}
                for resource, ids in sorted(held.items())
            ]
            for name, held in self.held(uid).items()
        }

    async def take(self, pod: Pod) -> None:
        """Have a pod hold all devices that it wants, before anything is made for it. DevicesNotReady,
        TopologyAffinityError."""
        wanted = device_requests(pod, self._resources)
        if not wanted:
            return
        for resource in sorted({name for wish in wanted for name in wish.counts}):
            self._plugin(resource)
        if not self._has(pod.uid, wanted):
            await self._hold(pod, wanted)
        if self._settings.allocate == AT_ADMISSION:
            for container in (*pod.spec.init_containers, *pod.spec.containers):
                await self._allocating.again(pod.uid, container.name, AT_ADMISSION)

    async def allocate(self, pod: Pod, container: Container, sandbox: str) -> DeviceRunOptions:
        """What a container needs for the devices that it has; to be asked right before it is made. DevicesNotReady."""
        if not self._held(pod.uid, container.name):
            if not any(each.container == container.name for each in device_requests(pod, self._resources)):
                return NOTHING
            await self.take(pod)  # the resource was not known yet when the pod came
        moment = AT_ADMISSION if self._settings.allocate == AT_ADMISSION else sandbox
        return await self._allocating.container(pod.uid, container.name, moment)

    async def release(self, uid: str) -> None:
        """Nothing of the pod is left; its devices are free. NotWritten."""
        blocked = [name for name, (holder, _) in self._blocked.items() if holder == uid]
        if blocked:
            await asyncio.to_thread(self._ledger.discard, uid)
            for resource in blocked:
                self._blocked.pop(resource, None)
        freed = await self._ledger.release(uid)
        for resource, ids in freed.items():
            self._resources[resource].pool.release(ids)
        if freed or blocked:
            self._listeners.waiting()

    def _held(self, uid: str, container: str) -> Mapping[str, AllocatedDevices]:
        record = self._ledger.get(uid)
        return record.containers.get(container, {}) if record is not None else {}

    def _plugin(self, resource: str) -> Plugin:
        """The one that brings a resource. DevicesNotReady."""
        if resource in self._blocked:
            raise DevicesNotReady(f"{resource}: {self._blocked[resource][1]}")
        found = self._resources[resource]
        if found.trouble or found.plugin is None:
            raise DevicesNotReady(found.trouble)
        return found.plugin

    def _has(self, uid: str, wanted: Sequence[DeviceRequest]) -> bool:
        """Whether a pod has what it wants, from before, and all of it can be used."""
        for wish in wanted:
            held = self._held(uid, wish.container)
            for resource, count in wish.counts.items():
                ids = held[resource].ids if resource in held else ()
                if len(ids) != count or not all(map(self._resources[resource].pool.is_usable, ids)):
                    return False
        return True

    async def _hold(self, pod: Pod, wanted: Sequence[DeviceRequest]) -> None:
        """While plugins are asked, others choose as well: then it is chosen again."""
        while True:
            chosen = await self._chosen(pod, wanted)
            containers = {
                name: {resource: AllocatedDevices(ids=ids) for resource, ids in of.items()}
                for name, of in chosen.items()
            }
            record = PodDevices(uid=pod.uid, namespace=pod.namespace, name=pod.name, containers=containers)
            if not self._ledger.clashes(record):
                break
        before = self._ledger.get(pod.uid)
        for resource, ids in record.ids().items():
            self._resources[resource].pool.hold(ids)
        try:
            await self._ledger.hold(record)
        except NotWritten as error:
            raise DevicesNotReady(f"it cannot be written down which devices it has: {error}") from error
        finally:
            now = self._ledger.get(pod.uid)
            kept = now.ids() if now is not None else {}
            for each in (before, record):
                self._free(each.ids() if each is not None else {}, kept)

    def _free(self, held: Mapping[str, set[str]], kept: Mapping[str, set[str]]) -> None:
        for resource, ids in held.items():
            self._resources[resource].pool.release(ids - kept.get(resource, set()))

    async def _chosen(self, pod: Pod, wanted: Sequence[DeviceRequest]) -> Selection:
        record = self._ledger.get(pod.uid)
        own = {
            resource: sorted(filter(self._resources[resource].pool.is_usable, ids))
            for resource, ids in (record.ids() if record is not None else {}).items()
        }
        pools = {name: each.pool for name, each in self._resources.items()}
        policy = self._settings.topology if record is None else BEST_EFFORT  # a pod that was taken once stays
        try:
            return await self._led(select_devices(wanted, pools, own=own, asked=self._has_preference, policy=policy))
        except NotEnoughDevices as error:
            raise DevicesNotReady(f"not enough devices: {error}") from error

    def _has_preference(self, resource: str) -> bool:
        plugin = self._resources[resource].plugin
        return plugin is not None and plugin.options.get_preferred_allocation_available

    async def _led(self, choosing: Generator[PreferenceQuery, Sequence[str], Selection]) -> Selection:
        try:
            question = next(choosing)
            while True:
                question = choosing.send(await self._preference(question))
        except StopIteration as end:
            chosen: Selection = end.value
            return chosen

    async def _preference(self, question: PreferenceQuery) -> Sequence[str]:
        try:
            plugin = self._plugin(question.resource)
            return await plugin.prefer(question.available, question.must, question.size)
        except (RpcError, DevicesNotReady) as error:
            log.info("device plugin without a preference", extra={"resource": question.resource, "why": str(error)})
            return ()

    def _changed(self, resource: Resource, ids: set[str]) -> None:
        self._news.set()
        self._tell_holders(resource, ids)
        self._listeners.waiting()

    def _tell_holders(self, resource: Resource, ids: set[str]) -> None:
        holders = self._ledger.holders(resource.name)
        affected: dict[str, list[str]] = {}
        for each in ids & holders.keys() if resource.ready else holders.keys():
            worse = resource.ready and not resource.pool.is_usable(each)
            affected.setdefault(holders[each], []).extend([each] if worse else [])
        for uid, worse_ids in affected.items():
            told = f"{resource.name}: not healthy: {', '.join(sorted(worse_ids))}" if worse_ids else ""
            self._listeners.holder(uid, told)
