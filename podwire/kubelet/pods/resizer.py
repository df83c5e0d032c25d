"""Resizes pods: allocates what the API wants a pod to have, and tells the runtime. `resize.py` has the terms."""

import logging
from collections.abc import Callable

from podwire.interfaces import Clock
from podwire.kubelet.config.linux_resources import container_limits, overhead_message
from podwire.kubelet.config.sandbox import pod_resources
from podwire.kubelet.pods.limits import PodLimits
from podwire.kubelet.pods.node_context import NodeContext
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.pods.resize import DEFERRED, ERROR, Allocations, Amounts, Condition, ResizeState, amounts, summary
from podwire.kubelet.ports import Cri
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError, Unimplemented
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder

log = logging.getLogger(__name__)

Obstacle = Callable[[Pod], tuple[str, str] | None]
"""Returns the reason and the message of a resize that must wait."""


class CannotResize(Exception):
    """A container keeps its resources for now; the text is for the pod's condition."""


class PodResizer:
    """Keeps no state of a pod: that is in its `ResizeState`."""

    def __init__(
        self,
        cri: Cri,
        clock: Clock,
        recorder: Recorder,
        node: NodeContext,
        allocations: Allocations,
        limits: PodLimits,
    ) -> None:
        self._cri = cri
        self._clock = clock
        self._recorder = recorder
        self._node = node
        self._allocations = allocations
        self._limits = limits

    async def follow(
        self, desired: Pod, pod: Pod, observed: ObservedPod, resize: ResizeState, obstacle: Obstacle
    ) -> bool:
        """Allocate the resources of the `desired` pod, and note when all containers have those of the allocated `pod`.
        Returns whether there is a new allocation."""
        resize.observe(pod, observed, self._allocations.actuated(pod.uid))
        if desired is pod:
            resize.pending = None
        elif not pod.finished and await self._allocate(desired, resize, obstacle):
            return True
        if resize.in_progress is None:
            if pod.uid in self._allocations.uids and not resize.complete(pod, observed):
                resize.in_progress = Condition("", "", pod.metadata.generation)  # begun by an earlier kubelet
        elif resize.complete(pod, observed):
            resize.in_progress = None
            await self._resize_sandbox(pod, observed)
            self._recorder.tell(pod, NORMAL, "ResizeCompleted", f"Pod resize completed: {summary(pod)}")
        return False

    async def _allocate(self, desired: Pod, resize: ResizeState, obstacle: Obstacle) -> bool:
        reason_and_message = obstacle(desired)
        if reason_and_message is None:
            try:
                await self._allocations.record(desired, resize.actuated)
            except OSError as error:
                reason_and_message = DEFERRED, f"cannot record the allocation: {error.strerror or error}"
        if reason_and_message is not None:
            pending = Condition(*reason_and_message, desired.metadata.generation)
            if pending != resize.pending:
                resize.pending = pending
                message = f"Pod resize {pending.reason}: {summary(desired, pending.message)}"
                self._recorder.tell(desired, WARNING, f"Resize{pending.reason}", message)
            return False
        resize.pending, resize.not_before = None, 0.0
        resize.in_progress = Condition("", "", desired.metadata.generation)
        self._recorder.tell(desired, NORMAL, "ResizeStarted", f"Pod resize started: {summary(desired)}")
        return True

    async def update(self, pod: Pod, container: Container, running: ObservedContainer, resize: ResizeState) -> bool:
        """Give a running container the resources of its spec. Returns whether that worked."""
        try:
            await self._update(pod, container, running, amounts(resize.actuated[running.id]))
            resize.actuated[running.id] = container.resources
            await self._allocations.record(pod, resize.actuated)
        except (CannotResize, OSError) as error:
            failed = Condition(ERROR, str(error), pod.metadata.generation)
            if failed != resize.in_progress:
                resize.in_progress = failed
                message = f"Pod resize error: {summary(pod, failed.message)}"
                self._recorder.tell(pod, WARNING, "ResizeError", message)
            resize.not_before = self._clock.monotonic() + self._limits.start_retry
            return False
        return True

    async def _update(self, pod: Pod, container: Container, running: ObservedContainer, actuated: Amounts) -> None:
        """Set the resources of the spec; `actuated` are those that the container has. Raises CannotResize.

        A memory limit below the present usage is refused: the kernel would kill the container, or refuse by itself.
        """
        wanted = amounts(container.resources)
        try:
            if wanted.memory_limit and (wanted.memory_limit < actuated.memory_limit or not actuated.memory_limit):
                used = await self._memory(running.id)
                if used >= wanted.memory_limit:
                    raise CannotResize(
                        f'cannot decrease memory limits: attempting to set container "{container.name}" memory limit '
                        f"({wanted.memory_limit}) below current usage ({used})"
                    )
            request = pb.UpdateContainerResourcesRequest(
                container_id=running.id, linux=container_limits(pod, container, self._node.facts())
            )
            await self._cri.call(methods.UPDATE_CONTAINER_RESOURCES, request, timeout=self._limits.runtime_call)
        except RpcError as error:
            raise CannotResize(str(error)) from error

    async def _resize_sandbox(self, pod: Pod, observed: ObservedPod) -> None:
        """Send the runtime the sum over the pod's containers; a runtime that does not implement the call is ignored."""
        if observed.sandbox is None:
            return
        request = pb.UpdatePodSandboxResourcesRequest(
            pod_sandbox_id=observed.sandbox.id,
            overhead=overhead_message(pod),
            resources=pod_resources(pod, self._node.pids()),
        )
        try:
            await self._cri.call(methods.UPDATE_POD_SANDBOX_RESOURCES, request, timeout=self._limits.runtime_call)
        except Unimplemented:
            return
        except RpcError as error:
            log.warning("cannot resize pod sandbox", extra={"error": str(error)})

    async def _memory(self, id_: str) -> int:
        request = pb.ContainerStatsRequest(container_id=id_)
        answer = await self._cri.call(methods.CONTAINER_STATS, request, timeout=self._limits.runtime_call)
        return answer.stats.memory.usage_bytes.value
