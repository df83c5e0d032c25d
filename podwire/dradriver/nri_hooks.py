"""NRI hooks: RunPodSandbox attaches, CreateContainer checks, StopPodSandbox and RemovePodSandbox detach.

They are fast: all slow work is done in NodePrepareResources. Pods without claims cost one look at the records.

Attachment fails closed. A container must not run without the interfaces that its pod claims. RunPodSandbox attaches
them or fails, but a driver that is down is not called. So there are three more checks, each of them sufficient:

| check | works | when it fails |
|---|---|---|
| createRuntime hook of the CDI file: compares netns and STATE/attached/POD | always | the container does not start |
| CreateContainer: does the same | while the driver runs | no container is created, the kubelet retries |
| annotation required-plugins.noderesource.dev/pod | podwire's kubelet and runtime | the sandbox waits for the driver |

The hook is for containers that name the claim in `resources.claims`; the pod's other containers have the other two.
With another kubelet or runtime those have only the second, and start while the driver is down: docs/network-driver.md.
The CDI file exists before the kubelet learns its name, so no container can be created without the hook.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.attach.pods import NotAttached, PodAttacher, Sandbox
from podwire.dradriver.claims.allocations import Allocation, PodRef
from podwire.dradriver.claims.character_devices import character_devices, stat_device
from podwire.dradriver.dependencies import allocations_in
from podwire.dradriver.instances import AnswerLock, Busy
from podwire.dradriver.names import NRI_INDEX, NRI_NAME
from podwire.nri import Adjustment, Plugin, Runtime, Updates, pb
from podwire.protocols.grpc_status import FailedPrecondition
from podwire.tasks.uncancelled import Uncancelled

_log = logging.getLogger("podwire.dradriver")

INTERFACES = "PODWIRE_NETWORK_INTERFACES"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NriLimits:
    synchronize: float = 1.0
    """Seconds that Synchronize waits for `reconcile`: a plugin that answers too late is not registered."""


class NetworkDriverPlugin(Plugin):
    name = NRI_NAME
    index = NRI_INDEX

    def __init__(
        self, attachments: Attachments, pods: PodAttacher, answer_lock: AnswerLock, limits: NriLimits | None = None
    ) -> None:
        self._attachments, self._pods, self._answer_lock = attachments, pods, answer_lock
        self._limits = limits or NriLimits()
        self._uncancelled = Uncancelled()

    async def drain(self, grace: float) -> None:
        """Waits for work that runtimes no longer wait for."""
        await self._uncancelled.drain(grace)

    async def configure(self, config: str, runtime: Runtime) -> None:  # noqa: ARG002 - the interface of the hook
        self._answer_lock.release()  # until this connection is one that is asked

    async def synchronize(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> Updates | None:  # noqa: ARG002 - the interface of the hook
        reconciling = self._uncancelled.start(self._reconcile([self._sandbox(pod) for pod in pods]))
        done, _ = await asyncio.wait([reconciling], timeout=self._limits.synchronize)
        if not done:
            _log.info("still reconciling pods after Synchronize", extra={"pods": len(pods)})
        return None

    async def _reconcile(self, sandboxes: Sequence[Sandbox]) -> None:
        try:
            await self._pods.reconcile(sandboxes)
        except Exception:  # noqa: BLE001 - logged; the pods that come next are served all the same
            _log.exception("cannot reconcile running pods")

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        if self._pods.has_claims(pod.uid):
            await self._complete(self._pods.attach(self._sandbox(pod)))

    async def create_container(self, pod: pb.PodSandbox, container: pb.Container) -> Adjustment | None:
        if not self._pods.has_claims(pod.uid):
            return None
        await self._complete(self._pods.check(self._sandbox(pod)))
        if not self._answer_lock.is_held():
            return None
        allocations = allocations_in(self._attachments.of_pod(pod.uid))
        return await asyncio.to_thread(adjustment, allocations, container)

    async def pod_vanished(self, pod: pb.PodSandbox) -> None:
        await self._detach(pod)

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        await self._detach(pod)

    async def remove_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        await self._detach(pod)

    async def _detach(self, pod: pb.PodSandbox) -> None:
        """Never fails the end of a pod: devices that are not restored now are restored by NodeUnprepareResources."""
        if not self._pods.has_claims(pod.uid) and not self._pods.has_orphans(pod.uid):
            return
        try:
            await self._complete(self._pods.detach(self._sandbox(pod)))
        except FailedPrecondition as error:
            _log.warning("devices of ended pod are not restored yet", extra={"pod": pod.name, "error": str(error)})

    async def _complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Completes the work also when the runtime gives up. Raises FailedPrecondition."""
        try:
            return await self._uncancelled.run(work)
        except (NotAttached, Busy) as error:
            raise FailedPrecondition(str(error)) from error

    def _sandbox(self, pod: pb.PodSandbox) -> Sandbox:
        ref = PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        return Sandbox(id=pod.id, pod=ref, netns=self.netns_of(pod))


def adjustment(allocations: Iterable[Allocation], container: pb.Container) -> Adjustment:
    """Adds the claims' character devices that the container does not have, and the names of the pod's interfaces.

    Raises FailedPrecondition. Blocks.
    """
    allocated = list(allocations)
    names = [allocation.settings.name for allocation in allocated if allocation.settings.name]
    result = Adjustment().add_env(INTERFACES, ",".join(names))
    present = {device.path for device in container.linux.devices}
    for path in character_devices(allocated):
        if path not in present:
            device = stat_device(path)
            result.add_device(path, major=device.major, minor=device.minor, file_mode=device.mode)
    return result
