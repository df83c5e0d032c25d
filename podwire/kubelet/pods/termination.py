"""Stops containers, and removes everything that was made for a pod."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwire.failpoints import declare, failpoint
from podwire.interfaces import Clock
from podwire.kubelet.claims import ClaimManager
from podwire.kubelet.devices import DeviceManager
from podwire.kubelet.events import ContainerEvents
from podwire.kubelet.log_rotation import remove_log
from podwire.kubelet.pods.hooks import FAILED_PRE_STOP, HookFailed, run_hook
from podwire.kubelet.pods.limits import PodLimits
from podwire.kubelet.pods.node_context import NodeContext
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.pods.resize import Allocations
from podwire.kubelet.pods.runtime_cache import RuntimeCache
from podwire.kubelet.pods.sandbox_queue import SandboxQueue
from podwire.kubelet.pods.status import pod_ips
from podwire.kubelet.ports import Cri
from podwire.kubelet.probes import Prober
from podwire.kubelet.volumes import VolumeManager
from podwire.linux.fs.trees import remove_path
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_methods import Unary
from podwire.protocols.grpc_status import NotFound
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

STOPPED = declare("kubelet.containers-stopped", "a pod's containers have exited; it still has its network")
DETACHED = declare("kubelet.sandboxes-stopped", "a pod has no network any more; its records and files exist")
REMOVED = declare("kubelet.pod-removed", "nothing of a pod is left on this node; the API server still has it")


class PodTermination:
    """Every method is idempotent: what does not exist any more is not an error. All may raise RpcError."""

    def __init__(
        self,
        cri: Cri,
        clock: Clock,
        events: ContainerEvents,
        node: NodeContext,
        cache: RuntimeCache,
        volumes: VolumeManager,
        devices: DeviceManager,
        claims: ClaimManager,
        allocations: Allocations,
        prober: Prober,
        queue: SandboxQueue,
        limits: PodLimits,
    ) -> None:
        self._cri = cri
        self._clock = clock
        self._events = events
        self._node = node
        self._cache = cache
        self._volumes = volumes
        self._devices = devices
        self._claims = claims
        self._allocations = allocations
        self._prober = prober
        self._queue = queue
        self._limits = limits

    async def kill_container(
        self, pod: Pod, container: Container, running: ObservedContainer, message: str, grace: int
    ) -> None:
        """The preStop hook within the grace period, then SIGTERM, and SIGKILL when the period is over."""
        message = message or f"Stopping container {container.name}"
        self._events.record(pod, container, NORMAL, "Killing", message)
        hook = container.lifecycle.pre_stop if container.lifecycle is not None else None
        if hook is not None and grace > 0:
            began = self._clock.monotonic()
            ips = pod_ips(pod, self._cache.observed(pod.uid), self._node.facts().ips)
            try:
                await run_hook(hook, pod, container, running.id, ips, self._prober, timeout=float(grace))
            except HookFailed as error:
                log.info("preStop hook failed, stopping container anyway", extra={"error": str(error)})
                self._events.record(pod, container, WARNING, *FAILED_PRE_STOP)
            left = grace - int(self._clock.monotonic() - began)
            grace = max(self._limits.grace_after_hook, left)
        await self.stop_container(running.id, grace)

    async def stop_container(self, id_: str, grace: int) -> None:
        request = pb.StopContainerRequest(container_id=id_, timeout=grace)
        await self._call(methods.STOP_CONTAINER, request, grace)

    async def kill_containers(self, pod: Pod, running: Sequence[ObservedContainer], grace: int) -> None:
        """Kill all app containers together, then sidecars one by one in reverse order, within one grace period."""
        began = self._clock.monotonic()
        specs = {container.name: container for container in pod.spec.every_container}
        sidecars = [container.name for container in pod.spec.init_containers if container.sidecar]
        async with asyncio.TaskGroup() as group:
            for container in running:
                if container.name not in sidecars:
                    spec = specs.get(container.name, Container(name=container.name))
                    group.create_task(self.kill_container(pod, spec, container, "", grace))
        last_first = [container for name in reversed(sidecars) for container in running if container.name == name]
        for container in last_first:
            left = max(0, grace - int(self._clock.monotonic() - began))
            await self.kill_container(pod, specs[container.name], container, "", left)

    async def stop_sandboxes(self, observed: ObservedPod) -> None:
        """Remove the pod's network; containers that still run are killed at once."""
        failpoint(STOPPED)
        for sandbox in observed.sandboxes:
            await self.stop_sandbox(sandbox.id)
        failpoint(DETACHED)

    async def stop_sandbox(self, id_: str) -> None:
        await self._call(methods.STOP_POD_SANDBOX, pb.StopPodSandboxRequest(pod_sandbox_id=id_))
        self._queue.freed()

    async def remove_sandbox(self, id_: str) -> None:
        """Remove a sandbox with its containers."""
        await self._call(methods.REMOVE_POD_SANDBOX, pb.RemovePodSandboxRequest(pod_sandbox_id=id_))

    async def remove_container(self, uid: str, container: ObservedContainer) -> None:
        """Remove a container with its log and its termination message."""
        await self._call(methods.REMOVE_CONTAINER, pb.RemoveContainerRequest(container_id=container.id))
        message = self._node.paths.termination_message(uid, container.name, container.attempt)
        await asyncio.to_thread(_remove_container_files, Path(container.log_path), message)

    async def remove_stray(self, id_: str) -> None:
        """Remove a container that has no sandbox."""
        await self.stop_container(id_, 0)
        await self._call(methods.REMOVE_CONTAINER, pb.RemoveContainerRequest(container_id=id_))

    async def _call(self, method: Unary[Any, Any], request: Any, grace: int = 0) -> None:
        try:
            await self._cri.call(method, request, timeout=grace + self._limits.runtime_call)
        except NotFound:
            return

    async def unprepare_claims(self, uid: str) -> None:
        """Have drivers unprepare the pod's claims; returns when they have."""
        await self._claims.release(uid)

    async def release_devices(self, uid: str) -> bool:
        """Release the devices of a pod that has ended. Returns False if the checkpoint could not be written."""
        try:
            await self._devices.release(uid)
        except OSError as error:
            log.warning("cannot release devices of pod", extra={"error": str(error)})
            return False
        return True

    async def release_volumes(self, pod: Pod) -> bool:
        """Unmount the persistent volumes of a pod that has ended. Returns False if that failed."""
        try:
            await self._volumes.release(pod)
        except OSError as error:
            log.warning("cannot unmount volumes of pod", extra={"error": str(error)})
            return False
        return True

    async def remove_pod(self, uid: str, observed: ObservedPod) -> None:
        """Remove everything that was made for a pod: sandboxes, claims, devices, volumes, logs. OSError."""
        for sandbox in observed.sandboxes:
            await self.remove_sandbox(sandbox.id)
        await self._claims.release(uid)
        await self._devices.release(uid)
        await self._allocations.forget(uid)
        await thread_to_completion(self._remove_logs, uid)
        await self._volumes.remove(uid)  # with the pod's directory, which is removed last
        failpoint(REMOVED)

    def _remove_logs(self, uid: str) -> None:
        for directory in self._node.paths.logs.glob(f"*_{uid}"):
            remove_path(directory)


def _remove_container_files(container_log: Path, message: Path) -> None:
    try:
        if container_log.name:
            remove_log(container_log)
        message.unlink(missing_ok=True)
    except OSError as error:
        log.info("cannot remove files of container", extra={"error": str(error)})
