"""Where the runtime and NRI's host meet: the runtime's steps become hooks, and plugins' wishes become limits."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from podwire.linux.values import Limits
from podwire.nri.adaptation import Adaptation
from podwire.protocols.cri import cri_pb2 as cri
from podwire.protocols.grpc_status import RpcError, Unavailable
from podwire.protocols.nri import Event
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.names import PluginId
from podwire.runtime.containers.container import Container
from podwire.runtime.containers.lifecycle import Containers
from podwire.runtime.hooks import ContainerDraft
from podwire.runtime.nri.adjustment import OomScore, Resolve, apply_adjustment
from podwire.runtime.nri.messages import container_message, pod_of, refresh
from podwire.runtime.nri.resources import from_cri, from_limits, overlay_limits
from podwire.runtime.sandboxes.sandbox import Sandbox

_log = logging.getLogger("podwire.runtime.nri")


class NriHooks:
    """The runtime's hooks, told to plugins by the host."""

    def __init__(
        self,
        host: Adaptation,
        *,
        spec_of: Callable[[str], Mapping[str, Any]],
        oom_score: OomScore,
        cdi: Resolve,
        may_work: Callable[[Sandbox], None],
    ) -> None:
        self._host = host
        self._spec_of = spec_of
        self._oom_score = oom_score
        self._cdi = cdi
        self._may_work = may_work
        self._told: dict[str, pb.Container] = {}
        """Containers by the specification that they have; what changes of one is put into a copy."""
        self._refused: dict[str, Sandbox] = {}
        """Pods, by uid, that were not made because a plugin was missing."""
        host.on_registered.append(self._registered)

    def adopt(self, sandboxes: Iterable[Sandbox], containers: Iterable[Container]) -> None:
        """What there was before this runtime was started: its plugins are told, as if it had never been gone."""
        pods, living = list(sandboxes), [each for each in containers if each.record.state != "exited"]
        self._host.know(
            [pod_of(each) for each in pods],
            [self._message(each) for each in living],
            stopped=[each.id for each in pods if each.record.hooked == "stopped"],
        )

    def _message(self, container: Container, *, pid: int = 0) -> pb.Container:
        """A container as it is now; it is read from disk once."""
        if container.id not in self._told:
            self._told[container.id] = container_message(container, self._spec_of(container.id))
        return refresh(self._told[container.id], container, pid=pid)

    def _registered(self, plugin: PluginId) -> None:
        """Who made a pod's sandbox in vain has reason to try again."""
        refused, self._refused = self._refused, {}
        if refused:
            _log.info("pods may start again", extra={"plugin": str(plugin), "pods": len(refused)})
        for each in refused.values():
            self._may_work(each)

    async def run_pod(self, sandbox: Sandbox) -> None:
        uid = sandbox.config.metadata.uid
        try:
            await self._host.run_pod_sandbox(pod_of(sandbox))
        except Unavailable:
            self._refused[uid] = sandbox
            raise
        self._refused.pop(uid, None)

    async def update_pod(
        self, sandbox: Sandbox, overhead: cri.LinuxContainerResources, resources: cri.LinuxContainerResources
    ) -> None:
        await self._host.update_pod_sandbox(pod_of(sandbox), from_cri(overhead), from_cri(resources))

    async def updated_pod(self, sandbox: Sandbox) -> None:
        await self._host.post_update_pod_sandbox(pod_of(sandbox))

    async def stop_pod(self, sandbox: Sandbox) -> bool:
        await self._host.stop_pod_sandbox(pod_of(sandbox))
        return bool(self._host.active())

    async def remove_pod(self, sandbox: Sandbox) -> None:
        await self._host.remove_pod_sandbox(pod_of(sandbox))

    async def create(self, sandbox: Sandbox, container: Container, draft: ContainerDraft) -> ContainerDraft:
        self._told[container.id] = container_message(container, draft.spec)
        adjusted = await self._host.create_container(pod_of(sandbox), container_message(container, draft.spec))
        if not adjusted.adjust.ByteSize():
            return draft
        wanted = apply_adjustment(
            draft,
            adjusted.adjust,
            has_network=bool(sandbox.record.network),
            oom_score=self._oom_score,
            cdi=self._cdi,
        )
        self._told[container.id] = container_message(container, wanted.spec)
        return wanted

    async def created(self, sandbox: Sandbox, container: Container) -> None:
        await self._host.post_create_container(pod_of(sandbox), self._message(container))

    def waits_for_start(self) -> bool:
        return self._host.wants(Event.START_CONTAINER)

    async def start(self, sandbox: Sandbox, container: Container, pid: int) -> None:
        await self._host.start_container(pod_of(sandbox), self._message(container, pid=pid))

    async def started(self, sandbox: Sandbox, container: Container) -> None:
        await self._host.post_start_container(pod_of(sandbox), self._message(container))

    async def update(self, sandbox: Sandbox, container: Container, limits: Limits) -> Limits:
        told = self._message(container)
        wanted = await self._host.update_container(pod_of(sandbox), told, from_limits(limits))
        return overlay_limits(limits, wanted, "update.linux.resources")

    async def updated(self, sandbox: Sandbox, container: Container) -> None:
        await self._host.post_update_container(pod_of(sandbox), self._message(container))

    async def stopped(self, sandbox: Sandbox, container: Container) -> bool:
        await self._host.stop_container(pod_of(sandbox), self._message(container))
        return bool(self._host.active())

    async def removed(self, sandbox: Sandbox, container: Container) -> None:
        await self._host.remove_container(pod_of(sandbox), self._message(container))
        self._told.pop(container.id, None)


class ContainerUpdater:
    """What plugins may change of containers that are there: the host's way into the runtime."""

    def __init__(self) -> None:
        self.containers: Containers | None = None
        """Set when there are any."""

    async def update_containers(self, updates: Sequence[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        """Set new limits, one container after the other; those that failed."""
        return [each for each in updates if not await self._update(each)]

    async def _update(self, update: pb.ContainerUpdate) -> bool:
        container = self.containers.find(update.container_id) if self.containers else None
        if container is None or self.containers is None:
            _log.warning("no such container to update", extra={"container": update.container_id})
            return False
        try:
            limits = overlay_limits(container.limits, update.linux.resources, "update.linux.resources")
            await self.containers.limit(container, limits)
        except (RpcError, OSError) as error:
            _log.warning("a container is not updated", extra={"container": container.id, "why": str(error)})
            return False
        return True
