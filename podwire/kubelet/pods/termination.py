"""Ends what runs: one container, or a whole pod with all that was made for it."""

import asyncio
import logging
import shutil
from collections.abc import Iterable

from podwire.failpoints import declare, failpoint
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.pods.dependencies import Kit
from podwire.kubelet.pods.hooks import FAILED_PRE_STOP, HookFailed, run_hook
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.pods.start import field_path
from podwire.kubelet.pods.status import pod_ips
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING

log = logging.getLogger(__name__)

CALL_SECONDS = 120.0
AFTER_HOOK_SECONDS = 2
"""What a container has left at least to end by itself, however long its preStop hook took."""


STOPPED = declare("kubelet.containers-stopped", "a pod's containers have ended; it still has its network")
DETACHED = declare("kubelet.sandboxes-stopped", "a pod has no network any more; its records and files are there")
REMOVED = declare("kubelet.pod-removed", "nothing of a pod is left on this node; the API server still has it")


class PodTermination:
    """Idempotent throughout: whatever is gone already is no error."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    async def container(self, pod: Pod, container: Container, seen: ObservedContainer, why: str, grace: int) -> None:
        """The preStop hook within the grace period, TERM, and KILL when that is over. RpcError."""
        where = field_path(pod, container)
        self._kit.recorder.tell(pod, NORMAL, "Killing", _killing(container, why), field_path=where)
        left = await self._before_stop(pod, container, seen, grace)
        await self.stop(seen.id, left)

    async def stop(self, id_: str, grace: int) -> None:
        request = pb.StopContainerRequest(container_id=id_, timeout=grace)
        try:
            await self._kit.cri.call(methods.STOP_CONTAINER, request, timeout=grace + CALL_SECONDS)
        except NotFound:
            return

    async def _before_stop(self, pod: Pod, container: Container, seen: ObservedContainer, grace: int) -> int:
        """Run the preStop hook; gives the seconds that are left."""
        hook = container.lifecycle.pre_stop if container.lifecycle is not None else None
        if hook is None or grace <= 0:
            return grace
        began = self._kit.clock.monotonic()
        facts: NodeFacts = self._kit.node()
        ips = pod_ips(pod, self._kit.view.observed(pod.uid), facts.ips)
        try:
            await run_hook(hook, pod, container, seen.id, ips, self._kit.prober, timeout=float(grace))
        except HookFailed as error:
            log.info("preStop hook failed", extra={"why": str(error)})
            self._kit.recorder.tell(pod, WARNING, *FAILED_PRE_STOP, field_path=field_path(pod, container))
        return max(AFTER_HOOK_SECONDS, grace - int(self._kit.clock.monotonic() - began))

    async def containers(self, pod: Pod, running: Iterable[ObservedContainer], grace: int) -> None:
        """All apps together, then the sidecars, the last one first, in what is left of the grace period. RpcError."""
        began = self._kit.clock.monotonic()
        by_name = {each.name: each for each in pod.spec.every_container}
        order = [each.name for each in pod.spec.init_containers if each.sidecar]
        sidecars = [each for each in running if each.name in order]
        await self._all(pod, by_name, [each for each in running if each.name not in order], grace)
        for each in sorted(sidecars, key=lambda seen: order.index(seen.name), reverse=True):
            left = max(0, grace - int(self._kit.clock.monotonic() - began))
            await self._all(pod, by_name, [each], left)

    async def _all(self, pod: Pod, by_name: dict[str, Container], seen: list[ObservedContainer], grace: int) -> None:
        async with asyncio.TaskGroup() as group:
            for each in seen:
                container = by_name.get(each.name, Container(name=each.name))
                group.create_task(self.container(pod, container, each, "", grace))

    async def sandboxes(self, observed: ObservedPod) -> None:
        """Take the network away; containers that still run end at once. RpcError."""
        failpoint(STOPPED)
        for each in observed.sandboxes:
            await self.stop_sandbox(each.id)
        failpoint(DETACHED)

    async def stop_sandbox(self, id_: str) -> None:
        try:
            request = pb.StopPodSandboxRequest(pod_sandbox_id=id_)
            await self._kit.cri.call(methods.STOP_POD_SANDBOX, request, timeout=CALL_SECONDS)
        except NotFound:
            return

    async def remove_sandbox(self, id_: str) -> None:
        """With the containers in it."""
        try:
            request = pb.RemovePodSandboxRequest(pod_sandbox_id=id_)
            await self._kit.cri.call(methods.REMOVE_POD_SANDBOX, request, timeout=CALL_SECONDS)
        except NotFound:
            return

    async def remove_container(self, id_: str) -> None:
        try:
            request = pb.RemoveContainerRequest(container_id=id_)
            await self._kit.cri.call(methods.REMOVE_CONTAINER, request, timeout=CALL_SECONDS)
        except NotFound:
            return

    async def free_devices(self, uid: str) -> bool:
        """Of a pod that needs them no more; whether the disk let it."""
        try:
            await self._kit.devices.release(uid)
        except OSError as error:
            log.warning("devices not freed yet", extra={"why": str(error)})
            return False
        return True

    async def remove(self, uid: str, observed: ObservedPod) -> None:
        """All that was made for a pod: in the runtime, its claims, devices, volumes, logs. RpcError, OSError."""
        for each in observed.sandboxes:
            await self.remove_sandbox(each.id)
        await self._kit.claims.release(uid)
        await self._kit.devices.release(uid)
        await self._kit.volumes.remove(uid)
        await asyncio.to_thread(self._remove_files, uid)
        failpoint(REMOVED)

    def _remove_files(self, uid: str) -> None:
        for each in self._kit.places.logs.glob(f"*_{uid}"):
            shutil.rmtree(each, ignore_errors=True)
        shutil.rmtree(self._kit.places.root / "pods" / uid, ignore_errors=True)


def _killing(container: Container, why: str) -> str:
    return why or f"Stopping container {container.name}"
