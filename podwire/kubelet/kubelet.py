"""The kubelet: creates its parts and runs them, and watches the API server for the pods of this node."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podwire.interfaces import Clock
from podwire.kubelet.claims import ClaimManager, ClaimSettings
from podwire.kubelet.config.dns import DnsSettings
from podwire.kubelet.damaged_state import DamagedState
from podwire.kubelet.devices import DeviceManager, DeviceSettings
from podwire.kubelet.devices.pod_resources import SOCKET as POD_RESOURCES
from podwire.kubelet.devices.pod_resources import PodResources
from podwire.kubelet.devices.recovery import restore
from podwire.kubelet.events import ContainerEvents
from podwire.kubelet.eviction.manager import EvictionManager
from podwire.kubelet.eviction.settings import EvictionSettings
from podwire.kubelet.images.garbage_collection import ImageGarbageCollector, ImageGcSettings
from podwire.kubelet.images.node_credentials import NodeCredentials
from podwire.kubelet.images.pulled_images import PulledImages
from podwire.kubelet.images.puller import ImagePuller
from podwire.kubelet.log_rotation import LogRotation, LogSettings
from podwire.kubelet.node import Machine, NodeAgent, NodeLimits, NodeSettings
from podwire.kubelet.node.runtime_health import RuntimeHealth, RuntimeInfo
from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.plugin_manager import Handler, PluginLimits, PluginManager
from podwire.kubelet.pods.admission import Host, has_host_ports
from podwire.kubelet.pods.allocation import PodAllocation
from podwire.kubelet.pods.container_start import ContainerStarter
from podwire.kubelet.pods.creating_calls import CreatingCalls
from podwire.kubelet.pods.dependencies import PodDependencies
from podwire.kubelet.pods.limits import PodLimits, RuntimeLimits, StatusLimits
from podwire.kubelet.pods.network_checks import NetworkChecks
from podwire.kubelet.pods.node_context import NodeContext
from podwire.kubelet.pods.pod_workers import PodWorkers
from podwire.kubelet.pods.resize import Allocations
from podwire.kubelet.pods.resizer import PodResizer
from podwire.kubelet.pods.runtime_cache import RuntimeCache
from podwire.kubelet.pods.sandbox_queue import SandboxQueue
from podwire.kubelet.pods.sandbox_start import SandboxStarter
from podwire.kubelet.pods.status_manager import PODS, StatusManager
from podwire.kubelet.pods.termination import PodTermination
from podwire.kubelet.pods.user_ids import UserIds
from podwire.kubelet.pods.wakeups import Wakeups
from podwire.kubelet.ports import Cri, PluginSockets
from podwire.kubelet.probes import NodeProber, Probes, Sockets
from podwire.kubelet.probes.worker import ProbedContainer, not_counted
from podwire.kubelet.referenced_objects import ReferencedObjects
from podwire.kubelet.static import StaticLimits, StaticPods
from podwire.kubelet.static.static_pods import is_mirror
from podwire.kubelet.volumes import VolumeManager
from podwire.kubelet.volumes.csi.drivers import CsiDrivers, CsiLimits
from podwire.kubelet.volumes.csi.node_info import NodeInfo
from podwire.kubelet.volumes.csi.volumes import CsiVolumes
from podwire.kubelet.volumes.ports import Mounts
from podwire.kubelet.volumes.usage import MountedUsage
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Added, Deleted, Synced, Updated
from podwire.protocols.podresources.methods import ALL as POD_RESOURCES_CALLS
from podwire.protocols.registration.methods import CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN

log = logging.getLogger(__name__)

OUR_RUNTIME = "podwire"
SERVICES = Kind(group="", version="v1", resource="services", kind="Service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """I/O that a kubelet is handed."""

    api: Client
    cri: Cri
    clock: Clock
    mounts: Mounts
    machine: Machine
    sockets: Sockets
    pod_started: Callable[[float], None]
    """Called with the seconds from the first sight of a pod until it ran."""
    network_files: Callable[[], AsyncIterator[None]]
    """Yields whenever CNI configurations or plugins have changed."""
    plugins: PluginSockets
    node_credentials: NodeCredentials = field(default_factory=NodeCredentials)
    """Logins of registries that the node has for all pods."""
    manifest_changes: Callable[[], AsyncIterator[None]] | None = None
    """Yields whenever manifests of static pods may have changed; without it they are polled."""
    record_damaged: Callable[[], None] = lambda: None
    """Called once for each record that is found damaged."""
    probed: Callable[[ProbedContainer, str, float], None] = not_counted
    """Called for each probe with its result and the seconds that it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    node: NodeSettings
    paths: KubeletPaths
    dns: DnsSettings
    manifests: Path | None = None
    """The directory of static pods."""
    devices: DeviceSettings = field(default_factory=DeviceSettings)
    claims: ClaimSettings = field(default_factory=ClaimSettings)
    eviction: EvictionSettings = field(default_factory=EvictionSettings)
    image_gc: ImageGcSettings = field(default_factory=ImageGcSettings)
    logs: LogSettings = field(default_factory=LogSettings)
    pod_limits: PodLimits = field(default_factory=PodLimits)
    status_limits: StatusLimits = field(default_factory=StatusLimits)
    runtime_limits: RuntimeLimits = field(default_factory=RuntimeLimits)
    node_limits: NodeLimits = field(default_factory=NodeLimits)
    plugin_limits: PluginLimits = field(default_factory=PluginLimits)
    csi_limits: CsiLimits = field(default_factory=CsiLimits)
    static_limits: StaticLimits = field(default_factory=StaticLimits)


async def _no_events() -> AsyncIterator[None]:
    await asyncio.Event().wait()
    yield


class Kubelet:
    """`pod_workers` is also the `PodLister` of the kubelet's server."""

    def __init__(self, outside: Dependencies, settings: KubeletSettings) -> None:
        api, cri, clock, root = outside.api, outside.cri, outside.clock, settings.paths.root
        self._outside = outside
        self._settings = settings
        self._wakeups = wakeups = Wakeups()
        self._recorder = recorder = Recorder(api, clock, component="kubelet", host=settings.node.name)
        self.node = NodeAgent(api, clock, outside.machine, settings.node, recorder, settings.node_limits)
        self._damaged = damaged = DamagedState(self.node.record, outside.record_damaged)
        self._devices = DeviceManager(
            outside.plugins, root, settings.devices, wakeups, self.node.set_devices, damaged.report
        )
        name = settings.node.name
        self._claims = ClaimManager(
            api, outside.plugins, root, name, settings.claims, wakeups, recorder, damaged.report
        )  # fmt: skip
        node_info = NodeInfo(api, name, lambda: self.node.node, self.node.registered)
        csi_drivers = CsiDrivers(outside.plugins, node_info, settings.csi_limits, self._csi_driver_registered)
        handlers: dict[str, Handler] = {
            CSI_PLUGIN: csi_drivers,
            DEVICE_PLUGIN: self._devices.registry,
            DRA_PLUGIN: self._claims.drivers,
        }
        self._plugins = PluginManager(outside.plugins, root / "plugins_registry", handlers, settings.plugin_limits)
        self._objects = ReferencedObjects(api, wakeups.objects_changed)
        self._services = api.informer(SERVICES, Scope(field_selector="spec.clusterIP!=None"))
        self._runtime = RuntimeInfo()
        limits = settings.runtime_limits
        self._health = RuntimeHealth(cri, self.node, wakeups, self._runtime, limits)
        self._creating_calls = CreatingCalls(cri)
        self._network_checks = NetworkChecks(cri, recorder, wakeups.pod, limits)
        self._cache = RuntimeCache(
            cri, settings.paths.owner, wakeups, self._health, self._network_checks, limits
        )  # fmt: skip
        self._volumes = VolumeManager(
            root, self._objects, api, outside.mounts, clock,
            node=lambda: self.node.facts, node_object=lambda: self.node.node,
            recursive_read_only=lambda: self._runtime.recursive_read_only,
            wake=wakeups.objects_changed,
            csi=lambda paths, tokens: CsiVolumes(
                api, csi_drivers, paths, outside.mounts, tokens, recorder, name, settings.csi_limits
            ),
        )  # fmt: skip
        self._log_rotation = LogRotation(cri, self._cache, clock, settings.logs)
        self._prober = NodeProber(cri, outside.sockets)
        self._events = ContainerEvents(recorder)
        self._probes = Probes(self._prober, clock, wakeups.probe_changed, self._events.record, probed=outside.probed)
        self._statuses = StatusManager(api, settings.status_limits)
        self._pulled_images = PulledImages(root / "image_manager", damaged.report)
        self._user_ids = UserIds(root / "pods", self._cache.first_id, damaged.report)
        self._allocations = Allocations(root / "allocations", damaged.report)
        self._apparmor = outside.machine.apparmor()
        self.pod_workers = PodWorkers(
            self._pod_dependencies(), wakeups, self.node, self._devices, self._claims, self._host
        )  # fmt: skip
        self._static = StaticPods(
            settings.manifests, outside.manifest_changes or _no_events, api, clock, self.node, self.pod_workers,
            self._statuses, settings.static_limits,
        )  # fmt: skip
        self.pod_workers.on_end = self._static.ended
        self._image_gc = ImageGarbageCollector(
            cri,
            clock,
            outside.machine,
            self.node.record,
            self._pulled_images,
            settings.image_gc,
            self._image_volumes,
        )
        self._eviction = EvictionManager(
            cri, clock, outside.machine, recorder, self.node, settings.node, settings.paths,
            self.pod_workers.evictable, settings.eviction, self._image_gc,
        )  # fmt: skip
        self._services_synced = asyncio.Event()
        self._pods_synced = asyncio.Event()

    def _pod_dependencies(self) -> PodDependencies:
        api, cri, clock = self._outside.api, self._outside.cri, self._outside.clock
        recorder, events, limits = self._recorder, self._events, self._settings.pod_limits
        node = NodeContext(
            paths=self._settings.paths,
            dns=self._settings.dns,
            facts=lambda: self.node.facts,
            services=lambda: list(self._services.objects.values()),
            first_id=self._first_id,
            pids=self._pids,
        )
        images = ImagePuller(
            cri, clock, events.record, node_credentials=self._outside.node_credentials, pulled=self._pulled_images
        )
        calls, queue = self._creating_calls, SandboxQueue(self._wakeups.sandbox_freed)
        sandboxes = SandboxStarter(api, calls, recorder, node, self._devices, self._claims, limits)
        return PodDependencies(
            clock=clock,
            recorder=recorder,
            node=node,
            runtime=self._runtime,
            cache=self._cache,
            creating_calls=calls,
            sandbox_queue=queue,
            objects=self._objects,
            volumes=self._volumes,
            probes=self._probes,
            statuses=self._statuses,
            allocation=PodAllocation(clock, recorder, self._devices, self._claims),
            allocations=self._allocations,
            resizer=PodResizer(cri, clock, recorder, node, self._allocations, limits),
            sandboxes=sandboxes,
            containers=ContainerStarter(
                cri, calls, clock, events, node, sandboxes, images, self._objects, self._volumes, self._devices,
                self._claims, self._prober, limits,
            ),
            termination=PodTermination(
                cri, clock, events, node, self._cache, self._volumes, self._devices, self._claims,
                self._allocations, self._prober, queue, limits,
            ),
            pod_started=self._outside.pod_started,
            limits=limits,
        )  # fmt: skip

    def _host(self, pod: Pod) -> Host:
        machine = self._outside.machine
        return Host(
            ports=frozenset({("TCP", self._settings.node.port)}),
            listeners=machine.listeners() if has_host_ports(pod) else (),
            apparmor=self._apparmor,
            pressures=self._eviction.pressures,
        )

    def _first_id(self, pod: Pod) -> int:
        if pod.spec.host_users or not self._runtime.user_namespaces:
            return 0
        return self._user_ids.first(pod.uid)

    def _pids(self) -> int:
        """The limit of processes of a pod; 0 for none. Only our runtime is known to accept one."""
        return max(0, self._settings.node.pod_pids) if self._runtime.name == OUR_RUNTIME else 0

    async def run(self) -> None:
        """Work until cancelled; if one part fails, all stop. Raises NewerFormat before anything starts."""
        self._damaged.start()
        await asyncio.to_thread(self._devices.load)
        await asyncio.to_thread(self._claims.load)
        await asyncio.to_thread(self._pulled_images.load)
        await asyncio.to_thread(self._allocations.load)
        parts = {
            "events": self._recorder.run(),
            "status manager": self._statuses.run(),
            "referenced objects": self._objects.run(),
            "volume manager": self._volumes.run(),
            "probes": self._probes.run(),
            "pod workers": self.pod_workers.run(),
            "runtime cache": self._cache.run(),
            "runtime health": self._health.run(),
            "log rotation": self._log_rotation.run(),
            "eviction manager": self._run_eviction(),
            "image garbage collection": self._run_image_gc(),
            "network checks": self._network_checks.run(),
            "device manager": self._devices.run(),
            "device recovery": restore(self._devices, self._outside.cri, self._settings.runtime_limits),
            "claim manager": self._claims.run(),
            "plugin manager": self._run_plugin_manager(),
            "pod resources": self._serve_pod_resources(),
            "node": self._run_node(),
            "services": self._watch_services(),
            "network files": self._watch_network_files(),
            "static pods": self._run_static_pods(),
            "pods": self._watch_pods(),
        }
        try:
            async with asyncio.TaskGroup() as group:
                for name, part in parts.items():
                    group.create_task(part, name=name)
        finally:
            await self._creating_calls.close()
            await self._volumes.close()

    async def volume_usage(self, pod: Pod) -> Mapping[str, MountedUsage]:
        """Usage of a pod's persistent and CSI volumes, by the name of the volume."""
        return await self._volumes.usage(pod)

    def _image_volumes(self) -> set[str]:
        """References of images that pods mount as volumes."""
        pods = (pod for pod, _ in self.pod_workers.all())
        return {volume.image.get("reference", "") for pod in pods for volume in pod.spec.volumes if volume.image} - {""}

    def _csi_driver_registered(self, name: str) -> None:
        self._volumes.driver_registered(name)

    async def _run_node(self) -> None:
        """The runtime is asked first: a node that is ready when it is registered needs no second request."""
        await self._devices.loaded.wait()
        await self._health.known.wait()
        await self.node.run()

    async def _run_eviction(self) -> None:
        """Starts when all pods are known: a node under pressure must not evict the first one that it sees."""
        await self._pods_synced.wait()
        await self._eviction.run()

    async def _run_image_gc(self) -> None:
        await self._pods_synced.wait()
        await self._image_gc.run()

    async def _run_plugin_manager(self) -> None:
        await self._devices.loaded.wait()
        await self._claims.loaded.wait()
        await self._plugins.run()

    async def _serve_pod_resources(self) -> None:
        """Served when all pods are known: before that, a client would take devices of the others for free."""
        await self._pods_synced.wait()
        handlers = PodResources(self._devices, self._claims.dynamic_resources, self.pod_workers).handlers
        socket = self._settings.paths.root / POD_RESOURCES
        try:
            async with self._outside.plugins.serve(socket, POD_RESOURCES_CALLS, handlers):
                await asyncio.Event().wait()
        except OSError as error:
            log.warning("cannot serve the pod-resources API", extra={"path": str(socket), "error": str(error)})
            await asyncio.Event().wait()

    async def _run_static_pods(self) -> None:
        """Static pods need no API server, so neither the Node nor Services are waited for."""
        await self._cache.complete.wait()
        await self._devices.loaded.wait()
        await self._claims.loaded.wait()
        await self._static.run()

    async def _watch_pods(self) -> None:
        """Pods are watched when everything that they may need is known: runtime, services, devices, claims, node."""
        await self._cache.complete.wait()
        await self._services_synced.wait()
        await self._devices.loaded.wait()
        await self._claims.loaded.wait()
        await self.node.registered.wait()
        with contextlib.suppress(OSError):  # repeated soon, and logged then
            await self._eviction.look()  # pods are not admitted to a node under pressure
        scope = Scope(field_selector=f"spec.nodeName={self._settings.node.name}")
        async with self._outside.api.informer(PODS, scope) as informer:
            async for change in informer:
                match change:
                    case Added(object_) | Updated(object_):
                        (self._static if is_mirror(object_) else self.pod_workers).present(object_)
                    case Deleted(object_):
                        (self._static if is_mirror(object_) else self.pod_workers).absent(object_)
                    case Synced():
                        await self._static.loaded.wait()  # else its pods would be orphans
                        self._static.mirrors_synced()
                        self.pod_workers.synced()
                        self._network_checks.pods_synced.set()
                        self._pods_synced.set()

    async def _watch_services(self) -> None:
        async with self._services:
            async for change in self._services:
                if isinstance(change, Synced):
                    self._services_synced.set()

    async def _watch_network_files(self) -> None:
        async for _ in self._outside.network_files():
            self._health.check()
            self._wakeups.network_changed()
