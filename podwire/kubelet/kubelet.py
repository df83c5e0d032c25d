"""The kubelet as a whole: its parts, who tells whom, and the watch that brings its pods."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.interfaces import Clock
from podwire.kubelet.claims import ClaimManager, ClaimSettings, NotUnprepared
from podwire.kubelet.claims import Listeners as ClaimListeners
from podwire.kubelet.claims.claim_info import ClaimUser
from podwire.kubelet.claims.errors import WAITING
from podwire.kubelet.claims.settings import DEFAULT as DEFAULT_CLAIMS
from podwire.kubelet.devices import DeviceManager, DeviceSettings, Listeners
from podwire.kubelet.devices.pod_resources import SOCKET as POD_RESOURCES
from podwire.kubelet.devices.pod_resources import PodResources
from podwire.kubelet.devices.recovery import restore
from podwire.kubelet.devices.settings import DEFAULT
from podwire.kubelet.images.puller import ImagePuller
from podwire.kubelet.node import Machine, NodeAgent, NodeSettings
from podwire.kubelet.node.runtime_health import RuntimeHealth
from podwire.kubelet.plugin_manager import Handler, PluginManager
from podwire.kubelet.pods.dependencies import Dns, Kit, KubeletPaths
from podwire.kubelet.pods.network_checks import NetworkChecks
from podwire.kubelet.pods.pod_workers import PodWorkers
from podwire.kubelet.pods.runtime_cache import RuntimeCache
from podwire.kubelet.pods.start import field_path
from podwire.kubelet.pods.status_manager import PODS, StatusManager
from podwire.kubelet.ports import Api, Cri, PluginSockets
from podwire.kubelet.probes import NodeProber, Probes, Sockets
from podwire.kubelet.referenced_objects import ReferencedObjects
from podwire.kubelet.volumes import VolumeManager
from podwire.kubelet.volumes.ports import Mounts
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Added, Deleted, Synced, Updated
from podwire.protocols.podresources.methods import ALL as POD_RESOURCES_CALLS
from podwire.protocols.registration.methods import DEVICE_PLUGIN, DRA_PLUGIN

log = logging.getLogger(__name__)

SERVICES = Kind(group="", version="v1", resource="services", kind="Service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What a kubelet is handed."""

    api: Api
    cri: Cri
    clock: Clock
    mounts: Mounts
    machine: Machine
    sockets: Sockets
    pod_started: Callable[[float], None]
    """Told the seconds from the first sight of a pod until it ran."""
    network_files: Callable[[], AsyncIterator[None]]
    """Tells when network configurations or plugins have changed."""
    plugins: PluginSockets


class Kubelet:
    """`workers` is also the book of its pods, for whoever asks about them."""

    def __init__(
        self,
        outside: Dependencies,
        settings: NodeSettings,
        root: Path,
        logs: Path,
        dns: Dns,
        devices: DeviceSettings = DEFAULT,
        claims: ClaimSettings = DEFAULT_CLAIMS,
    ) -> None:
        self._outside = outside
        self._name = settings.name
        api, cri, clock = outside.api, outside.cri, outside.clock
        self._recorder = Recorder(api, clock, component="kubelet", host=settings.name)
        self.workers = PodWorkers()
        self._network_checks = NetworkChecks(cri, self._recorder, self.workers.pod)
        self.node = NodeAgent(api, clock, outside.machine, settings, self._about_node)
        places = KubeletPaths(root=root, logs=logs)
        references = ReferencedObjects(api, self.workers.references_changed)
        told = Listeners(
            node=self.node.devices_are, waiting=self.workers.devices_changed, holder=self.workers.device_changed
        )
        self._devices = DeviceManager(outside.plugins, root, devices, told)
        self._claims = self._claim_manager(root, claims)
        handlers: dict[str, Handler] = {DEVICE_PLUGIN: self._devices.registrar, DRA_PLUGIN: self._claims.drivers}
        self._plugins = PluginManager(outside.plugins, root / "plugins_registry", handlers)
        prober = NodeProber(cri, outside.sockets)
        self._services = api.informer(SERVICES, Scope(field_selector="spec.clusterIP!=None"))
        self._services_known = asyncio.Event()
        self._pods_known = asyncio.Event()
        self._kit = Kit(
            api=api,
            cri=cri,
            clock=clock,
            view=RuntimeCache(
                cri, places.owner, self.workers.runtime_changed, self._runtime_came, self._runtime_went,
                self._network_checks.look,
            ),
            volumes=VolumeManager(
                root, references, api, outside.mounts, clock,
                node=lambda: self.node.facts, recursive_read_only=lambda: self._kit.recursive_read_only,
            ),
            devices=self._devices,
            claims=self._claims,
            references=references,
            images=ImagePuller(cri, clock, self._about_image),
            probes=Probes(prober, clock, self.workers.probe_changed, self._about_probe),
            prober=prober,
            recorder=self._recorder,
            reports=StatusManager(api),
            places=places,
            dns=dns,
            node=lambda: self.node.facts,
            services=lambda: list(self._services.objects.values()),
            pod_started=outside.pod_started,
        )  # fmt: skip
        self._health = RuntimeHealth(self._kit, self.node, self.workers)

    def _claim_manager(self, root: Path, settings: ClaimSettings) -> ClaimManager:
        told = ClaimListeners(
            waiting=self.workers.claims_changed,
            pod=self.workers.claim_changed,
            reconcile=self.workers.look_for_orphans,
            slow=lambda pod, why: self._recorder.tell(pod, WARNING, WAITING, why),
            trouble=self._about_claims,
        )
        return ClaimManager(self._outside.api, self._outside.plugins, root, self._name, settings, told)

    async def run(self) -> None:
        """Work until cancelled; if one part fails, all stop."""
        parts = {
            "events": self._recorder.run(),
            "statuses": self._kit.reports.run(),
            "references": self._kit.references.run(),
            "volumes": self._kit.volumes.run(),
            "probes": self._kit.probes.run(),
            "workers": self.workers.run(self._kit, self.node),
            "runtime": self._kit.view.run(),
            "health": self._health.run(),
            "network checks": self._network_checks.run(),
            "devices": self._devices.run(),
            "devices of before": restore(self._devices, self._outside.cri),
            "claims": self._claims.run(),
            "plugins": self._register_plugins(),
            "pod resources": self._tell_of_resources(),
            "node": self._be_a_node(),
            "services": self._watch_services(),
            "network files": self._watch_network_files(),
            "pods": self._watch_pods(),
        }
        try:
            async with asyncio.TaskGroup() as group:
                for name, work in parts.items():
                    group.create_task(work, name=name)
        finally:
            await self._kit.volumes.close()

    async def _be_a_node(self) -> None:
        """The runtime is looked at first: a node that is ready when it appears needs no second message."""
        await self._devices.loaded.wait()
        await self._health.known.wait()
        await self.node.run()

    async def _register_plugins(self) -> None:
        await self._devices.loaded.wait()
        await self._claims.loaded.wait()
        await self._plugins.run()

    async def _tell_of_resources(self) -> None:
        """Whoever asks before all pods are known would take what is missing for free."""
        await self._pods_known.wait()
        handlers = PodResources(self._devices, self._claims.dynamic_resources, lambda: self.workers).handlers
        socket = self._kit.places.root / POD_RESOURCES
        try:
            async with self._outside.plugins.serve(socket, POD_RESOURCES_CALLS, handlers):
                await asyncio.Event().wait()
        except OSError as error:
            log.warning("pod resources cannot be asked for", extra={"why": str(error)})
            await asyncio.Event().wait()

    async def _watch_pods(self) -> None:
        """Pods are seen when what they may need is: the runtime, the node, the services."""
        await self._kit.view.complete.wait()
        await self._services_known.wait()
        await self._devices.loaded.wait()
        await self._claims.loaded.wait()
        await self.node.registered.wait()
        informer = self._outside.api.informer(PODS, Scope(field_selector=f"spec.nodeName={self._name}"))
        async with informer:
            async for change in informer:
                match change:
                    case Added(object_) | Updated(object_):
                        self.workers.present(object_)
                    case Deleted(object_):
                        self.workers.absent(object_)
                    case Synced():
                        self.workers.synced()
                        self._network_checks.pods_known.set()
                        self._pods_known.set()

    async def _watch_services(self) -> None:
        async with self._services:
            async for change in self._services:
                if isinstance(change, Synced):
                    self._services_known.set()

    async def _watch_network_files(self) -> None:
        async for _ in self._outside.network_files():
            self._health.look()
            self.workers.network_changed()

    def _runtime_came(self) -> None:
        self._health.came()
        self.workers.look_for_orphans()
        if (view := self._kit.view).current:  # once for each connection; one without events is looked at all the time
            self._network_checks.look_at_all({uid: view.observed(uid) for uid in view.uids})

    def _runtime_went(self, why: str) -> None:
        self._health.went(why)

    def _about_node(self, type_: str, reason: str, message: str) -> None:
        self._recorder.tell(Reference(kind="Node", name=self._name, uid=self._name), type_, reason, message)

    def _about_claims(self, namespace: str, user: ClaimUser, error: NotUnprepared) -> None:
        pod = Reference(kind="Pod", namespace=namespace, name=user.name, uid=user.uid)
        self._recorder.tell(pod, WARNING, error.reason, error.told)

    def _about_image(self, pod: Pod, container: Container, type_: str, reason: str, message: str) -> None:
        self._recorder.tell(pod, type_, reason, message, field_path=field_path(pod, container))

    def _about_probe(self, pod: Pod, container: Container, reason: str, message: str) -> None:
        kind = NORMAL if reason == "Killing" else WARNING
        self._recorder.tell(pod, kind, reason, message, field_path=field_path(pod, container))
