"""The runtime's chair of NRI: who sits in it tells the host what happens to pods and containers, and hears what
plugins want changed.

Each hook here ends in the step in which the table of what there is changes; see relay.py for what that is good for.
A message that is handed in is kept, not copied: it goes on to describe the same thing. Who gives up waiting for a hook
does not end it: the plugin is at it until it answers, and is asked nothing else meanwhile.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from podwire.interfaces import Tap
from podwire.nri.adaptation.connected_plugin import ConnectedPlugin
from podwire.nri.adaptation.connections import Connections
from podwire.nri.adaptation.creating import Adjusted, Creation, refuse_evictions
from podwire.nri.adaptation.dispatch import Dispatcher
from podwire.nri.adaptation.inventory import Inventory
from podwire.nri.adaptation.ports import ContainerUpdater
from podwire.nri.adaptation.registration import Registrar, Runtime, log_failed
from podwire.nri.adaptation.registrations import Registrations
from podwire.nri.adaptation.settings import Settings
from podwire.nri.adaptation.statistics import Record, Records
from podwire.protocols.grpc_status import InvalidArgument
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAnnotation
from podwire.protocols.nri.events import Event
from podwire.protocols.nri.names import PluginId
from podwire.protocols.nri.required import required_for
from podwire.protocols.nri.updates import UpdateMerger

log = logging.getLogger(__name__)

_NOBODY: frozenset[ConnectedPlugin] = frozenset()


class Adaptation:
    """Plugins of one runtime, and the hooks by which it asks them.

    Costs nothing while there are none: then a hook is a change of the table.
    """

    def __init__(
        self,
        settings: Settings,
        node: ContainerUpdater,
        *,
        runtime_name: str,
        runtime_version: str,
        tap: Tap | None = None,
    ) -> None:
        self._settings = settings
        self._node = node
        self._table = Inventory()
        self._seats = Registrations()
        self._records = Records()
        self._relay = Dispatcher(self._seats, grace=settings.grace)
        self._creation = Creation(self._seats, self._relay, settings.validator)
        runtime = Runtime(name=runtime_name, version=runtime_version)
        admission = Registrar(settings, node, runtime, self._records, snapshot=self._seat, lose=self._lose, tap=tap)
        self._door = Connections(settings, node, admission, self._lose, self._registered)
        self._leaving = False
        self.on_registered: list[Callable[[PluginId], None]] = []
        """Each is told of every plugin that becomes active."""

    # Its life.

    def know(
        self, pods: Iterable[pb.PodSandbox], containers: Iterable[pb.Container], *, stopped: Iterable[str] = ()
    ) -> None:
        """What was there before the runtime was started, told before `running`.

        `stopped` are the ids of those of whose stop plugins have been told: they are not told again.
        """
        told = frozenset(stopped)
        self._table.pods.know(pods, told)
        self._table.containers.know(containers, told)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let plugins in, until left. Raises OSError when the socket cannot be had.

        1. Listen.   2. Start pre-installed plugins, and wait until each is active or has failed: no pod starts without
        them that could have had them.   3. On the way out: nobody new, close all connections, kill and reap what was
        started here.
        """
        self._relay.started = asyncio.get_running_loop().time()
        async with AsyncExitStack() as stack:
            if not self._settings.disable:
                await stack.enter_async_context(self._door.open())
            yield
            self._leaving = True

    def active(self) -> tuple[PluginId, ...]:
        """Plugins that are asked, in this order."""
        return tuple(each.id for each in self._seats.peers() if each.is_active)

    def wants(self, event: Event) -> bool:
        """Whether anybody is asked when this happens."""
        return self._seats.next(event, _NOBODY) is not None

    def report(self) -> list[Record]:
        """Every plugin that is here or was: its state, what its hooks cost, and its last error."""
        return self._records.all()

    async def wait_for(self, wanted: str) -> None:
        """Until a plugin of this name, or NN-name, is active."""
        while not any(each.is_meant_by(wanted) for each in self.active()):
            await self._seats.change()

    def _seat(self, peer: ConnectedPlugin) -> tuple[tuple[pb.PodSandbox, ...], tuple[pb.Container, ...]]:
        """In one step, so that nothing happens between what it is told and what it is asked."""
        self._seats.take(peer)
        return self._table.snapshot()

    def _registered(self, peer: ConnectedPlugin) -> None:
        self._seats.changed()
        for each in self.on_registered:
            try:
                each(peer.id)
            except Exception:
                log.exception("a listener failed", extra={"plugin": str(peer.id)})

    def _lose(self, peer: ConnectedPlugin, why: str) -> None:
        if peer.gone(why):
            self._seats.leave(peer, asyncio.get_running_loop().time())
            level = logging.INFO if self._leaving else logging.WARNING
            log.log(level, "a plugin is gone", extra={"plugin": str(peer.id), "pid": peer.record.pid, "reason": why})

    # Pods.

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Raises RpcError: a plugin's own, or Unavailable naming a required plugin that is not there.

        After an error the caller stops and removes the pod here, too: plugins that were asked before learn it so.
        """
        required = self._required(pod, None)
        if self._seats or required:
            request = pb.RunPodSandboxRequest(pod=pod)
            await self._relay.strictly(Event.RUN_POD_SANDBOX, pod, lambda: request, required=required)
        self._table.pods.put(pod)

    async def update_pod_sandbox(
        self, pod: pb.PodSandbox, overhead: pb.LinuxResources, resources: pb.LinuxResources
    ) -> None:
        """Raises RpcError."""
        if self._seats:
            request = pb.UpdatePodSandboxRequest(pod=pod, overhead_linux_resources=overhead, linux_resources=resources)
            await self._relay.strictly(Event.UPDATE_POD_SANDBOX, pod, lambda: request)

    async def post_update_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        await self._tell(Event.POST_UPDATE_POD_SANDBOX, pod)
        self._table.pods.change(pod)

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Told once for each pod; never raises."""
        if self._table.pods.begin_stop(pod):
            await self._tell(Event.STOP_POD_SANDBOX, pod)
            self._table.pods.end_stop(pod)

    async def remove_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """A pod that plugins have not heard of as stopped is stopped first; never raises."""
        await self.stop_pod_sandbox(pod)
        if self._table.pods.begin_removal(pod):
            await self._tell(Event.REMOVE_POD_SANDBOX, pod)
            self._table.pods.end_removal(pod)

    # Containers.

    async def create_container(self, pod: pb.PodSandbox, container: pb.Container) -> Adjusted:
        """What plugins want of it, merged and judged; their updates of other containers are done. Raises RpcError.

        After an error, this one's or a later one's, the caller calls remove_container, as for a pod.
        """
        required = self._required(pod, container.name)
        if not self._seats and not required and not self._settings.validator.enable:
            self._table.containers.put(container)
            return Adjusted(pb.ContainerAdjustment())
        merger, asked = await self._creation.ask(pod, container, required)
        self._table.containers.put(merger.request.container)
        await self._creation.judge(pod, container, merger)
        await self._update_others(Event.CREATE_CONTAINER, merger.updates)
        return Adjusted(merger.adjust, asked)

    async def post_create_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        await self._tell(Event.POST_CREATE_CONTAINER, pod, container)
        self._table.containers.change(container)

    async def start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """Raises RpcError; after it, the caller calls stop_container."""
        if self._seats:
            request = pb.StartContainerRequest(pod=pod, container=container)
            await self._relay.strictly(Event.START_CONTAINER, pod, lambda: request)
        self._table.containers.change(container)

    async def post_start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        await self._tell(Event.POST_START_CONTAINER, pod, container)
        self._table.containers.change(container)

    async def update_container(
        self, pod: pb.PodSandbox, container: pb.Container, resources: pb.LinuxResources
    ) -> pb.LinuxResources:
        """What to apply instead of what was asked for; updates of other containers are done. Raises RpcError."""
        if not self._seats:
            return resources
        merger = UpdateMerger(pb.UpdateContainerRequest(pod=pod, container=container, linux_resources=resources))

        def take(plugin: str, response: pb.UpdateContainerResponse) -> None:
            refuse_evictions(plugin, response.evict)
            merger.add(plugin, response)

        await self._relay.strictly(Event.UPDATE_CONTAINER, pod, lambda: merger.request, take=take)
        await self._update_others(Event.UPDATE_CONTAINER, merger.updates)
        return merger.resources

    async def post_update_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        await self._tell(Event.POST_UPDATE_CONTAINER, pod, container)
        self._table.containers.change(container)

    async def stop_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """Told once for each container; never raises."""
        if not self._table.containers.begin_stop(container):
            return
        if self._seats:
            merger = UpdateMerger(pb.StopContainerRequest(pod=pod, container=container))
            await self._relay.leniently(Event.STOP_CONTAINER, pod, lambda: merger.request, take=merger.add)
            self._table.containers.end_stop(container)
            await self._update_others(Event.STOP_CONTAINER, merger.updates)
        else:
            self._table.containers.end_stop(container)

    async def remove_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """One that plugins have not heard of as stopped is stopped first, as containerd does; never raises."""
        await self.stop_container(pod, container)
        if self._table.containers.begin_removal(container):
            await self._tell(Event.REMOVE_CONTAINER, pod, container)
            self._table.containers.end_removal(container)

    # What hooks have in common.

    async def _tell(self, event: Event, pod: pb.PodSandbox, container: pb.Container | None = None) -> None:
        if not self._seats:
            return
        request: Any = event.method.request(pod=pod)
        if container is not None:
            request.container.CopyFrom(container)
        await self._relay.leniently(event, pod, lambda: request)

    def _required(self, pod: pb.PodSandbox, container: str | None) -> tuple[str, ...]:
        try:
            return required_for(
                pod, container, self._settings.required_plugins, self._settings.tolerate_missing_plugins_annotation
            )
        except BadAnnotation as error:
            raise InvalidArgument(str(error)) from error

    async def _update_others(self, event: Event, updates: Sequence[pb.ContainerUpdate]) -> None:
        """What fails is logged, and the container goes on, as in containerd."""
        if updates:
            log_failed(event.title, await self._node.update_containers(updates))
