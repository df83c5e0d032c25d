"""The runtime's hooks by NRI: sends its events to plugins, and applies their updates of containers."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from podwire.linux.cgroups.values import Limits
from podwire.nri.adaptation import Adaptation
from podwire.protocols.cri import cri_pb2 as cri
from podwire.protocols.grpc_status import RpcError, Unavailable
from podwire.protocols.nri import Event
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.names import PluginId
from podwire.protocols.nri.oci import container_of
from podwire.runtime.containers.container import Container
from podwire.runtime.containers.lifecycle import Containers
from podwire.runtime.hooks import ContainerDraft
from podwire.runtime.nri.adjustment import OomScore, Resolve, apply_adjustment
from podwire.runtime.nri.messages import container_message, pod_message, refresh_message
from podwire.runtime.nri.resources import from_cri, from_limits, overlay_limits
from podwire.runtime.sandboxes.sandbox import Sandbox

_log = logging.getLogger("podwire.runtime.nri")


class NriHooks:
    """Implements `Hooks` with the NRI host, which calls the plugins."""

    def __init__(
        self,
        host: Adaptation,
        *,
        spec_of: Callable[[str], Mapping[str, Any]],
        oom_score: OomScore,
        cdi: Resolve,
        on_may_start: Callable[[Sandbox], None],
    ) -> None:
        self._host = host
        self._spec_of = spec_of
        self._oom_score = oom_score
        self._cdi = cdi
        self._on_may_start = on_may_start
        self._messages: dict[str, pb.Container] = {}
        """Containers by their specifications; fields that change are set in copies."""
        self._refused: dict[str, Sandbox] = {}
        """Pods, by uid, that were not run because a required plugin was missing."""
        host.on_registered.append(self._on_registered)

    def adopt(self, sandboxes: Iterable[Sandbox], containers: Iterable[Container]) -> None:
        """Hands the host what existed before this start, for the Synchronize request of its plugins."""
        pods = list(sandboxes)
        self._host.know(
            [pod_message(pod) for pod in pods],
            [self._message(container) for container in containers if container.record.state != "exited"],
            stopped=[pod.id for pod in pods if pod.record.hooked == "stopped"],
        )

    def _message(self, container: Container, *, pid: int = 0) -> pb.Container:
        """Returns a container as it is now; its specification is read from disk once."""
        if container.id not in self._messages:
            self._messages[container.id] = container_message(container, self._spec_of(container.id))
        return refresh_message(self._messages[container.id], container, pid=pid)

    def _on_registered(self, plugin: PluginId) -> None:
        """Has the kubelet retry pods that were refused because a plugin was missing."""
        refused, self._refused = self._refused, {}
        if refused:
            _log.info("refused pods may start again", extra={"plugin": str(plugin), "pods": len(refused)})
        for sandbox in refused.values():
            self._on_may_start(sandbox)

    async def run_pod(self, sandbox: Sandbox) -> None:
        uid = sandbox.config.metadata.uid
        try:
            await self._host.run_pod_sandbox(pod_message(sandbox))
        except Unavailable:
            self._refused[uid] = sandbox
            raise
        self._refused.pop(uid, None)

    async def update_pod(
        self, sandbox: Sandbox, overhead: cri.LinuxContainerResources, resources: cri.LinuxContainerResources
    ) -> None:
        await self._host.update_pod_sandbox(pod_message(sandbox), from_cri(overhead), from_cri(resources))

    async def updated_pod(self, sandbox: Sandbox) -> None:
        await self._host.post_update_pod_sandbox(pod_message(sandbox))

    async def stop_pod(self, sandbox: Sandbox) -> bool:
        await self._host.stop_pod_sandbox(pod_message(sandbox))
        return bool(self._host.active())

    async def remove_pod(self, sandbox: Sandbox) -> None:
        await self._host.remove_pod_sandbox(pod_message(sandbox))

    async def create(self, sandbox: Sandbox, container: Container, draft: ContainerDraft) -> ContainerDraft:
        self._messages[container.id] = container_message(container, draft.spec)
        adjusted = await self._host.create_container(pod_message(sandbox), container_message(container, draft.spec))
        if not adjusted.adjust.ByteSize():
            return draft
        adjusted_draft = apply_adjustment(
            draft,
            adjusted.adjust,
            has_network=bool(sandbox.record.network),
            oom_score=self._oom_score,
            cdi=self._cdi,
        )
        self._messages[container.id] = container_message(container, adjusted_draft.spec)
        return adjusted_draft

    async def created(self, sandbox: Sandbox, container: Container) -> None:
        await self._host.post_create_container(pod_message(sandbox), self._message(container))

    def waits_for_start(self) -> bool:
        return self._host.wants(Event.START_CONTAINER)

    async def start(self, sandbox: Sandbox, container: Container, pid: int) -> None:
        await self._host.start_container(pod_message(sandbox), self._message(container, pid=pid))

    async def started(self, sandbox: Sandbox, container: Container) -> None:
        await self._host.post_start_container(pod_message(sandbox), self._message(container))

    async def update(self, sandbox: Sandbox, container: Container, limits: Limits) -> Limits:
        message = self._message(container)
        resources = await self._host.update_container(pod_message(sandbox), message, from_limits(limits))
        return overlay_limits(limits, resources, "update.linux.resources", message.linux.resources.devices)

    async def updated(self, sandbox: Sandbox, container: Container) -> None:
        await self._host.post_update_container(pod_message(sandbox), self._message(container))

    async def stopped(self, sandbox: Sandbox, container: Container) -> bool:
        await self._host.stop_container(pod_message(sandbox), self._message(container))
        return bool(self._host.active())

    async def removed(self, sandbox: Sandbox, container: Container) -> None:
        await self._host.remove_container(pod_message(sandbox), self._message(container))
        self._messages.pop(container.id, None)


class ContainerUpdater:
    """Applies updates that plugins request by themselves (UpdateContainers)."""

    def __init__(self, spec_of: Callable[[str], Mapping[str, Any]]) -> None:
        self._spec_of = spec_of
        self.containers: Containers | None = None
        """Set once the runtime has its containers."""

    async def update_containers(self, updates: Sequence[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        """Sets new limits, one container after the other. Returns the updates that failed."""
        return [update for update in updates if not await self._update(update)]

    async def _update(self, update: pb.ContainerUpdate) -> bool:
        container = self.containers.find(update.container_id) if self.containers else None
        if container is None or self.containers is None:
            _log.warning("plugin updated unknown container", extra={"container": update.container_id})
            return False
        try:
            requested = update.linux.resources
            devices = container_of(self._spec_of(container.id)).linux.resources.devices if requested.devices else ()
            limits = overlay_limits(container.limits, requested, "update.linux.resources", devices)
            await self.containers.set_limits(container, limits)
        except (RpcError, OSError) as error:
            fields = {"container": container.id, "error": str(error)}
            _log.warning("cannot apply plugin's update of container", extra=fields)
            return False
        return True
