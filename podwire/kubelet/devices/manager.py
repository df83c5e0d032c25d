"""The device manager: selects the devices of a pod before its sandbox is created, has plugins allocate them before a
container is created, and releases them when the pod has ended."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from podwire.durable.records import Problem
from podwire.kubelet.devices import pod_devices
from podwire.kubelet.devices.allocator import ContainerAllocator
from podwire.kubelet.devices.checkpoint import DeviceCheckpoint, NotWritten
from podwire.kubelet.devices.errors import DevicesNotReady
from podwire.kubelet.devices.plugin import Plugin
from podwire.kubelet.devices.pod_devices import AllocatedDevices, PodDevices
from podwire.kubelet.devices.registration import DevicePluginRegistry
from podwire.kubelet.devices.requests import DeviceRequest, device_requests
from podwire.kubelet.devices.resource import Resource
from podwire.kubelet.devices.run_options import NOTHING, DeviceRunOptions
from podwire.kubelet.devices.selection import NotEnoughDevices, PreferenceQuery, Selection, select_devices
from podwire.kubelet.devices.settings import AT_ADMISSION, DeviceSettings
from podwire.kubelet.devices.topology import BEST_EFFORT
from podwire.kubelet.pods.wakeups import Wakeups
from podwire.kubelet.ports import PluginSockets
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.grpc_status import RpcError
from podwire.tasks.backoff import Pauses

log = logging.getLogger(__name__)

PUBLISH_PAUSES = 0.05, 1.0
"""Between two updates of the Node: the first change is published at once, a stream of changes ever more rarely."""

Amounts = Mapping[str, tuple[int, int] | None]
"""By resource: capacity and allocatable; None for a resource that is gone from this node."""


class DeviceManager:
    """`load` and the recovery of damaged records come first; `loaded` is set when pods can be given devices."""

    def __init__(
        self,
        sockets: PluginSockets,
        root: Path,
        settings: DeviceSettings,
        wakeups: Wakeups,
        publish: Callable[[Amounts], None],
        report: Callable[[Problem], None] | None = None,
    ) -> None:
        """`publish` updates the Node's capacity and allocatable. `report` is called when a record is damaged, in any
        thread."""
        self._settings = settings
        self._wakeups = wakeups
        self._publish = publish
        self._checkpoint = DeviceCheckpoint(root / "devices", report)
        self.registry = DevicePluginRegistry(
            sockets,
            root / "device-plugins",
            grace=settings.grace,
            limits=settings.limits,
            changed=self._changed,
            add_resource=lambda name: self._checkpoint.add_resources([name]),
        )
        self._resources = self.registry.resources
        self._blocked: dict[str, tuple[str, str]] = {}
        """By resource: a pod that holds unknown devices of it, and the cause."""
        self._amounts_changed = asyncio.Event()
        self._allocator = ContainerAllocator(self._checkpoint, self._plugin)
        self.damaged: list[str] = []
        """Uids of pods whose records are damaged: `recovery.py` recovers them."""
        self.loaded = asyncio.Event()

    def load(self) -> None:
        """Read the checkpoint. Blocks. Raises NewerFormat."""
        self.damaged = self._checkpoint.load()

    def recover(self, uid: str, devices: PodDevices | None) -> None:
        """Replace a damaged record; None if the pod holds no devices. Blocks."""
        if devices is not None:
            self._checkpoint.restore(devices)
            self._allocator.write_later(uid)
        self._checkpoint.discard_damaged(uid)

    def block(self, uid: str, error: str) -> None:
        """Fail closed: no device of any resource known so far is given to a pod as long as this pod exists."""
        for resource in sorted(self._checkpoint.resources):
            log.error("devices of resource are blocked", extra={"resource": resource, "error": error})
            self._blocked[resource] = uid, error

    def ready(self) -> None:
        """The holders of all devices are known."""
        self.registry.expect(self._checkpoint.resources)
        for name, resource in self._resources.items():
            resource.pool.hold(self._checkpoint.holders(name))
        self._publish(self.amounts())
        self.loaded.set()

    async def run(self) -> None:
        """Work until cancelled."""
        await self.loaded.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.registry.run(), name="device plugins")
            group.create_task(self._publish_changes(), name="devices of the node")
            group.create_task(self._allocator.run(), name="device checkpoint")

    async def _publish_changes(self) -> None:
        pauses = Pauses(*PUBLISH_PAUSES)
        while True:
            await self._amounts_changed.wait()
            self._amounts_changed.clear()
            self._publish(self.amounts())
            await asyncio.sleep(pauses.next())
            if not self._amounts_changed.is_set():
                pauses.reset()

    def amounts(self) -> Amounts:
        return {
            name: (resource.pool.capacity, resource.pool.allocatable) if resource.published else None
            for name, resource in self._resources.items()
        }

    @property
    def capacities(self) -> dict[str, int | None]:
        """Capacities of all resources of plugins; None while a capacity is unknown."""
        return {name: resource.pool.capacity if resource.ready else None for name, resource in self._resources.items()}

    @property
    def resources(self) -> Mapping[str, Resource]:
        return self._resources

    @property
    def uids(self) -> set[str]:
        """Pods that hold devices, known or unknown ones."""
        return self._checkpoint.uids | {uid for uid, _ in self._blocked.values()}

    def held(self, uid: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """By container and resource: the ids of devices that a pod holds."""
        pod = self._checkpoint.get(uid)
        containers = pod.containers if pod is not None else {}
        return {
            name: {resource: devices.ids for resource, devices in by_resource.items()}
            for name, by_resource in containers.items()
        }

    def annotation(self, uid: str) -> str:
        """The annotation of the pod's sandbox; empty when it holds no devices."""
        devices = self._checkpoint.get(uid)
        return pod_devices.annotation(devices.ids()) if devices is not None else ""

    def statuses(self, uid: str) -> dict[str, list[dict[str, object]]]:
        """By container: the health of its devices as the pod's status shows it."""
        return {
            name: [
                {"name": resource, "resources": self._resources[resource].healths(ids)}
                for resource, ids in sorted(held.items())
            ]
            for name, held in self.held(uid).items()
        }

    async def take(self, pod: Pod) -> None:
        """Have a pod hold all devices that it requests, before anything is made for it. Raises DevicesNotReady,
        TopologyAffinityError."""
        requests = device_requests(pod, self._resources)
        if not requests:
            return
        for resource in sorted({name for request in requests for name in request.counts}):
            self._plugin(resource)
        if not self._has(pod.uid, requests):
            await self._hold(pod, requests)
        if self._settings.allocate == AT_ADMISSION:
            for container in (*pod.spec.init_containers, *pod.spec.containers):
                await self._allocator.allocate_again(pod.uid, container.name, AT_ADMISSION)

    async def allocate(self, pod: Pod, container: Container, sandbox: str) -> DeviceRunOptions:
        """Options of a container for its devices, right before it is created. Raises DevicesNotReady."""
        if not self._checkpoint_of(pod.uid, container.name):
            requests = device_requests(pod, self._resources)
            if not any(request.container == container.name for request in requests):
                return NOTHING
            await self.take(pod)  # the resource was unknown when the sandbox was created
        moment = AT_ADMISSION if self._settings.allocate == AT_ADMISSION else sandbox
        return await self._allocator.allocate(pod.uid, container.name, moment)

    async def release(self, uid: str) -> None:
        """The pod has ended: free its devices. Raises NotWritten."""
        blocked = [name for name, (holder, _) in self._blocked.items() if holder == uid]
        if blocked:
            await asyncio.to_thread(self._checkpoint.discard_damaged, uid)
            for resource in blocked:
                self._blocked.pop(resource, None)
        freed = await self._checkpoint.release(uid)
        for resource, ids in freed.items():
            self._resources[resource].pool.release(ids)
        if freed or blocked:
            self._wakeups.devices_changed()

    def _checkpoint_of(self, uid: str, container: str) -> Mapping[str, AllocatedDevices]:
        pod = self._checkpoint.get(uid)
        return pod.containers.get(container, {}) if pod is not None else {}

    def _plugin(self, resource: str) -> Plugin:
        """The plugin of a resource. Raises DevicesNotReady."""
        if resource in self._blocked:
            raise DevicesNotReady(f"{resource}: {self._blocked[resource][1]}")
        known = self._resources[resource]
        if known.error or known.plugin is None:
            raise DevicesNotReady(known.error)
        return known.plugin

    def _has(self, uid: str, requests: Sequence[DeviceRequest]) -> bool:
        """Whether a pod holds the devices that it requests already, and all of them are healthy."""
        for request in requests:
            devices = self._checkpoint_of(uid, request.container)
            for resource, count in request.counts.items():
                ids = devices[resource].ids if resource in devices else ()
                if len(ids) != count or not all(map(self._resources[resource].pool.is_usable, ids)):
                    return False
        return True

    async def _hold(self, pod: Pod, requests: Sequence[DeviceRequest]) -> None:
        """Select and hold. Plugins are asked for preferences meanwhile, so another pod may hold a selected device by
        then: select again."""
        while True:
            selection = await self._select(pod, requests)
            containers = {
                name: {resource: AllocatedDevices(ids=ids) for resource, ids in by_resource.items()}
                for name, by_resource in selection.items()
            }
            devices = PodDevices(uid=pod.uid, namespace=pod.namespace, name=pod.name, containers=containers)
            if not self._checkpoint.conflicts(devices):
                break
        before = self._checkpoint.get(pod.uid)
        for resource, ids in devices.ids().items():
            self._resources[resource].pool.hold(ids)
        try:
            await self._checkpoint.hold(devices)
        except NotWritten as error:
            raise DevicesNotReady(f"cannot record the devices of the pod: {error}") from error
        finally:
            now = self._checkpoint.get(pod.uid)
            kept = now.ids() if now is not None else {}
            for candidate in (before, devices):
                for resource, ids in candidate.ids().items() if candidate is not None else ():
                    self._resources[resource].pool.release(ids - kept.get(resource, set()))

    async def _select(self, pod: Pod, requests: Sequence[DeviceRequest]) -> Selection:
        known = self._checkpoint.get(pod.uid)
        own = {
            resource: sorted(filter(self._resources[resource].pool.is_usable, ids))
            for resource, ids in (known.ids() if known is not None else {}).items()
        }
        pools = {name: resource.pool for name, resource in self._resources.items()}
        policy = self._settings.topology if known is None else BEST_EFFORT  # a pod that was admitted once stays
        selecting = select_devices(requests, pools, own=own, has_preference=self._has_preference, policy=policy)
        try:
            query = next(selecting)
            while True:
                query = selecting.send(await self._preference(query))
        except StopIteration as end:
            selection: Selection = end.value
            return selection
        except NotEnoughDevices as error:
            raise DevicesNotReady(f"not enough devices: {error}") from error

    def _has_preference(self, resource: str) -> bool:
        plugin = self._resources[resource].plugin
        return plugin is not None and plugin.options.get_preferred_allocation_available

    async def _preference(self, query: PreferenceQuery) -> Sequence[str]:
        try:
            plugin = self._plugin(query.resource)
            return await plugin.prefer(query.available, query.must, query.size)
        except (RpcError, DevicesNotReady) as error:
            log.info("cannot get preferred allocation", extra={"resource": query.resource, "error": str(error)})
            return ()

    def _changed(self, resource: Resource, ids: set[str]) -> None:
        """Devices of a resource changed; or, if it is not ready, its plugin is gone."""
        self._amounts_changed.set()
        holders = self._checkpoint.holders(resource.name)
        affected: dict[str, list[str]] = {}
        for id_ in ids & holders.keys() if resource.ready else holders.keys():
            unhealthy = resource.ready and not resource.pool.is_usable(id_)
            affected.setdefault(holders[id_], []).extend([id_] if unhealthy else [])
        for uid, unhealthy_ids in affected.items():
            problem = f"{resource.name}: not healthy: {', '.join(sorted(unhealthy_ids))}" if unhealthy_ids else ""
            self._wakeups.device_changed(uid, problem)
        self._wakeups.devices_changed()
