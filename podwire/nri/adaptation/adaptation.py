"""The adaptation: a runtime reports here what happens to pods and containers, and gets what plugins adjust.

Each hook calls the plugins in order and then, in the same step of the event loop as its last answer, changes the
inventory; dispatch.py explains why. A message that is handed in is kept and not copied: it goes on to describe the same
pod or container. A caller that is cancelled does not end a plugin's call: the plugin works on it until it answers, and
is called for nothing else meanwhile.

A hook that can refuse raises RpcError; the others log what plugins answer.

| hook                                                  | a plugin's error            | a required plugin is missing   |
|-------------------------------------------------------|-----------------------------|--------------------------------|
| run_pod_sandbox, create_container                     | refuses the request         | waits, then refuses            |
| update_pod_sandbox, start_container, update_container | refuses the request         | is not looked at               |
| post_*, stop_*, remove_*                              | is logged, the others go on | is not looked at               |
| validation of a CreateContainer                       | refuses, no answer, too     | (the validator must answer)    |
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from podwire.interfaces import Tap
from podwire.nri.adaptation.connected_plugin import ConnectedPlugin, PluginLost
from podwire.nri.adaptation.connections import Connections
from podwire.nri.adaptation.dispatch import Dispatcher
from podwire.nri.adaptation.inventory import Inventory
from podwire.nri.adaptation.registration import ContainerUpdater, Registrar, RuntimeInfo, log_failed_updates
from podwire.nri.adaptation.registrations import Registrations
from podwire.nri.adaptation.settings import Settings
from podwire.nri.adaptation.statistics import PluginRecord, Statistics
from podwire.protocols.grpc_status import InvalidArgument, PermissionDenied, RpcError, Unavailable
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAnnotation
from podwire.protocols.nri.events import Event
from podwire.protocols.nri.merge import Merger
from podwire.protocols.nri.names import PluginId
from podwire.protocols.nri.required import required_for
from podwire.protocols.nri.updates import UpdateMerger
from podwire.protocols.nri.validation import default_verdict

log = logging.getLogger(__name__)

_VALIDATE = Event.VALIDATE_CONTAINER_ADJUSTMENT
_NO_PLUGINS: frozenset[ConnectedPlugin] = frozenset()


@dataclass(frozen=True, slots=True)
class Adjusted:
    """The merged adjustment of a container that is being created."""

    adjust: pb.ContainerAdjustment
    plugins: tuple[str, ...] = ()
    """The plugins that were called, in order."""


class Adaptation:
    """The plugins of one runtime. Without plugins a hook is one change of the inventory."""

    def __init__(
        self,
        settings: Settings,
        updater: ContainerUpdater,
        *,
        runtime_name: str,
        runtime_version: str,
        tap: Tap | None = None,
    ) -> None:
        self._settings, self._updater = settings, updater
        self._inventory = Inventory()
        self._registrations = Registrations()
        self._statistics = Statistics()
        self._dispatcher = Dispatcher(self._registrations, grace=settings.grace)
        registrar = Registrar(
            settings,
            updater,
            RuntimeInfo(name=runtime_name, version=runtime_version),
            self._statistics,
            snapshot=self._register_and_snapshot,
            lose=self._lose,
            tap=tap,
        )
        self._connections = Connections(settings, updater, registrar, self._lose, self._activated)
        self._stopping = False
        self.on_registered: list[Callable[[PluginId], None]] = []
        """Called for every plugin that becomes active."""

    # Lifecycle.

    def know(
        self, pods: Iterable[pb.PodSandbox], containers: Iterable[pb.Container], *, stopped: Iterable[str] = ()
    ) -> None:
        """Add what existed before the runtime started; call before `running`.

        `stopped` are the ids of pods and containers whose stop was reported to plugins already: it is not repeated.
        """
        reported = frozenset(stopped)
        self._inventory.pods.know(pods, reported)
        self._inventory.containers.know(containers, reported)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept plugins until left. Raises OSError when the socket cannot be created.

        1. Listen.   2. Start pre-installed plugins, and wait until each is active or has failed, so that no pod starts
        without them.   3. When left: accept no connection, close all, kill and reap the processes started here.
        """
        self._dispatcher.started = asyncio.get_running_loop().time()
        async with AsyncExitStack() as stack:
            if not self._settings.disable:
                await stack.enter_async_context(self._connections.open())
            yield
            self._stopping = True

    def active(self) -> tuple[PluginId, ...]:
        """The plugins that are called, in order."""
        return tuple(plugin.id for plugin in self._registrations.plugins() if plugin.is_active)

    def wants(self, event: Event) -> bool:
        """Whether a plugin is subscribed to an event."""
        return self._registrations.next(event, _NO_PLUGINS) is not None

    def report(self) -> list[PluginRecord]:
        """Every plugin that is or was registered: its state, what its hooks cost, its last error."""
        return self._statistics.all()

    async def wait_for(self, name: str) -> None:
        """Wait until a plugin of this name, or NN-name, is active."""
        while not any(plugin.is_meant_by(name) for plugin in self.active()):
            await self._registrations.wait_for_change()

    def _register_and_snapshot(
        self, plugin: ConnectedPlugin
    ) -> tuple[tuple[pb.PodSandbox, ...], tuple[pb.Container, ...]]:
        """In one step, so that nothing happens between the snapshot and the first event that the plugin gets."""
        self._registrations.add(plugin)
        return self._inventory.snapshot()

    def _activated(self, plugin: ConnectedPlugin) -> None:
        self._registrations.changed()
        for callback in self.on_registered:
            try:
                callback(plugin.id)
            except Exception:
                log.exception("callback for registered plugin failed", extra={"plugin": str(plugin.id)})

    def _lose(self, plugin: ConnectedPlugin, error: str) -> None:
        if plugin.close(error):
            self._registrations.remove(plugin, asyncio.get_running_loop().time())
            level = logging.INFO if self._stopping else logging.WARNING
            log.log(
                level,
                "NRI plugin disconnected",
                extra={"plugin": str(plugin.id), "pid": plugin.record.pid, "error": error},
            )

    # Pods.

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Raises RpcError: a plugin's own, or Unavailable that names a missing required plugin.

        After an error the caller stops and removes the pod here, too, so that the plugins called before learn of it.
        """
        required = self._required(pod, None)
        if self._registrations or required:
            request = pb.RunPodSandboxRequest(pod=pod)
            await self._dispatcher.call_all(Event.RUN_POD_SANDBOX, pod, lambda: request, required=required)
        self._inventory.pods.put(pod)

    async def update_pod_sandbox(
        self, pod: pb.PodSandbox, overhead: pb.LinuxResources, resources: pb.LinuxResources
    ) -> None:
        """Raises RpcError."""
        if self._registrations:
            request = pb.UpdatePodSandboxRequest(pod=pod, overhead_linux_resources=overhead, linux_resources=resources)
            await self._dispatcher.call_all(Event.UPDATE_POD_SANDBOX, pod, lambda: request)

    async def post_update_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        await self._notify(Event.POST_UPDATE_POD_SANDBOX, pod)
        self._inventory.pods.change(pod)

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Reports the stop once per pod; never raises."""
        if self._inventory.pods.begin_stop(pod):
            await self._notify(Event.STOP_POD_SANDBOX, pod)
            self._inventory.pods.end_stop(pod)

    async def remove_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Reports the stop first if it has not been reported yet; never raises."""
        await self.stop_pod_sandbox(pod)
        if self._inventory.pods.begin_removal(pod):
            await self._notify(Event.REMOVE_POD_SANDBOX, pod)
            self._inventory.pods.end_removal(pod)

    # Containers.

    async def create_container(self, pod: pb.PodSandbox, container: pb.Container) -> Adjusted:
        """Returns the merged and validated adjustment; updates of other containers are applied. Raises RpcError.

        After an error, of this hook or of a later step, the caller calls remove_container, as for a pod.
        """
        required = self._required(pod, container.name)
        if not self._registrations and not required and not self._settings.validator.enable:
            self._inventory.containers.put(container)
            return Adjusted(pb.ContainerAdjustment())
        merger = Merger(pb.CreateContainerRequest(pod=pod, container=container))

        def merge(plugin: str, response: pb.CreateContainerResponse) -> None:
            _reject_evictions(plugin, response.evict)
            merger.add(plugin, response)

        called = await self._dispatcher.call_all(
            Event.CREATE_CONTAINER, pod, lambda: merger.request, on_response=merge, required=required
        )
        self._inventory.containers.put(merger.request.container)
        await self._validate(pod, container, merger)
        await self._update_others(Event.CREATE_CONTAINER, merger.updates)
        return Adjusted(merger.adjust, called)

    async def _validate(self, pod: pb.PodSandbox, container: pb.Container, merger: Merger) -> None:
        """Asks the default validator, then all validator plugins at once. Raises RpcError.

        Fails closed: a validator that does not answer has not accepted.
        """
        validators = [plugin for plugin in self._registrations.plugins() if _VALIDATE in plugin.events]
        if not validators and not self._settings.validator.enable:
            return
        plugins = [
            pb.PluginInstance(name=registration.id.name, index=registration.id.index)
            for registration in self._registrations.plugins()
        ]
        request = pb.ValidateContainerAdjustmentRequest(
            pod=pod,
            container=container,
            adjust=merger.adjust,
            update=merger.updates,
            owners=merger.owners,
            plugins=plugins,
        )
        if self._settings.validator.enable and (reason := default_verdict(self._settings.validator, request)):
            raise PermissionDenied(f"the default validator rejected the adjustment of {container.name}: {reason}")

        async def rejection(validator: ConnectedPlugin) -> RpcError | None:
            try:
                response = await validator.call(_VALIDATE, request)
            except RpcError as error:
                return error
            except PluginLost:
                return Unavailable(f"validator {validator.id} did not answer, so {container.name} is not created")
            if not response.reject:
                return None
            reason = response.reason or "no reason given"
            return PermissionDenied(f"validator {validator.id} rejected the adjustment of {container.name}: {reason}")

        for error in await asyncio.gather(*map(rejection, validators)):
            if error is not None:
                raise error

    async def post_create_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        await self._notify(Event.POST_CREATE_CONTAINER, pod, container)
        self._inventory.containers.change(container)

    async def start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """Raises RpcError; after an error the caller calls stop_container."""
        if self._registrations:
            request = pb.StartContainerRequest(pod=pod, container=container)
            await self._dispatcher.call_all(Event.START_CONTAINER, pod, lambda: request)
        self._inventory.containers.change(container)

    async def post_start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        await self._notify(Event.POST_START_CONTAINER, pod, container)
        self._inventory.containers.change(container)

    async def update_container(
        self, pod: pb.PodSandbox, container: pb.Container, resources: pb.LinuxResources
    ) -> pb.LinuxResources:
        """Returns the resources to apply; updates of other containers are applied. Raises RpcError."""
        if not self._registrations:
            return resources
        merger = UpdateMerger(pb.UpdateContainerRequest(pod=pod, container=container, linux_resources=resources))

        def merge(plugin: str, response: pb.UpdateContainerResponse) -> None:
            _reject_evictions(plugin, response.evict)
            merger.add(plugin, response)

        await self._dispatcher.call_all(Event.UPDATE_CONTAINER, pod, lambda: merger.request, on_response=merge)
        await self._update_others(Event.UPDATE_CONTAINER, merger.updates)
        return merger.resources

    async def post_update_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        await self._notify(Event.POST_UPDATE_CONTAINER, pod, container)
        self._inventory.containers.change(container)

    async def stop_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """Reports the stop once per container; never raises."""
        if not self._inventory.containers.begin_stop(container):
            return
        if not self._registrations:
            self._inventory.containers.end_stop(container)
            return
        merger = UpdateMerger(pb.StopContainerRequest(pod=pod, container=container))
        await self._dispatcher.notify_all(Event.STOP_CONTAINER, pod, lambda: merger.request, on_response=merger.add)
        self._inventory.containers.end_stop(container)
        await self._update_others(Event.STOP_CONTAINER, merger.updates)

    async def remove_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """Reports the stop first if it has not been reported yet, as containerd does; never raises."""
        await self.stop_container(pod, container)
        if self._inventory.containers.begin_removal(container):
            await self._notify(Event.REMOVE_CONTAINER, pod, container)
            self._inventory.containers.end_removal(container)

    # Shared by hooks.

    async def _notify(self, event: Event, pod: pb.PodSandbox, container: pb.Container | None = None) -> None:
        if not self._registrations:
            return
        request: Any = event.method.request(pod=pod)
        if container is not None:
            request.container.CopyFrom(container)
        await self._dispatcher.notify_all(event, pod, lambda: request)

    def _required(self, pod: pb.PodSandbox, container: str | None) -> tuple[str, ...]:
        try:
            return required_for(
                pod, container, self._settings.required_plugins, self._settings.tolerate_missing_plugins_annotation
            )
        except BadAnnotation as error:
            raise InvalidArgument(str(error)) from error

    async def _update_others(self, event: Event, updates: Sequence[pb.ContainerUpdate]) -> None:
        """Failed updates are logged, and the container goes on, as in containerd."""
        if updates:
            log_failed_updates(event.title, await self._updater.update_containers(updates))


def _reject_evictions(plugin: str, evictions: Sequence[pb.ContainerEviction]) -> None:
    """NRI defines evictions and no runtime carries them out; the plugin's author is to see that in the log."""
    for eviction in evictions:
        log.error(
            "eviction is not supported: no container is evicted for a plugin",
            extra={"plugin": plugin, "container": eviction.container_id, "error": eviction.reason},
        )
