"""The eviction manager: looks at the node and at pods with limits, and evicts pods one at a time.

1. Observe: memory, process ids, the file systems of the node and of images. Ten seconds after the last look, or when
   the kernel reports that tasks wait for memory.
2. Report the conditions of pressure; admission and the scheduler keep new pods away.
3. Evict every pod that exceeds a limit of local storage.
4. If a threshold is passed: for a disk, containers and files of pods that have finished are removed, then unused
   images; if that is not enough, and for all other resources, evict the first pod of the ranking, and look again when
   it is removed. This goes on until the minimum reclaim of the threshold is available, too.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from podwire.interfaces import Clock
from podwire.kubelet.config.resources import is_critical
from podwire.kubelet.eviction import ranking, storage_limits
from podwire.kubelet.eviction.meter import PodMeter
from podwire.kubelet.eviction.settings import EvictionSettings
from podwire.kubelet.eviction.thresholds import (
    DISK,
    SIGNALS,
    Observation,
    Threshold,
    in_order,
    met,
    observations,
    pressed_conditions,
    reclaiming,
    unresolved,
)
from podwire.kubelet.eviction.usage import PodUsage
from podwire.kubelet.images.garbage_collection import ImageGarbageCollector, ImageGcFailed
from podwire.kubelet.node.agent import NodeAgent
from podwire.kubelet.node.settings import Machine, NodeSettings
from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.ports import Cri
from podwire.linux.errors import LinuxError
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder

log = logging.getLogger(__name__)


class EvictablePod(Protocol):
    """A pod's worker."""

    @property
    def pod(self) -> Pod: ...

    @property
    def observed(self) -> ObservedPod: ...

    @property
    def active(self) -> bool:
        """Whether the pod uses resources and is not being ended already."""
        ...

    @property
    def content_removed(self) -> asyncio.Event:
        """Nothing of the pod is on the node any more."""
        ...

    def discard(self) -> bool:
        """Remove the containers and files of a pod that has finished; returns whether it has. `content_removed`
        follows."""
        ...

    def evict(self, message: str, grace: int, *, disruption: bool) -> None:
        """End the pod with the reason Evicted. `disruption`: not for what the pod did, but for the node's sake."""
        ...


class EvictionManager:
    def __init__(
        self,
        cri: Cri,
        clock: Clock,
        machine: Machine,
        recorder: Recorder,
        node: NodeAgent,
        node_settings: NodeSettings,
        paths: KubeletPaths,
        pods: Callable[[], Iterable[EvictablePod]],
        settings: EvictionSettings,
        images: ImageGarbageCollector,
    ) -> None:
        self._images = images
        self._cri = cri
        self._clock = clock
        self._machine = machine
        self._recorder = recorder
        self._node = node
        self._node_settings = node_settings
        self._pods = pods
        self._settings = settings
        self._meter = PodMeter(cri, paths, settings.call)
        self._thresholds = reclaiming((*node_settings.thresholds, *settings.soft), settings.minimum_reclaim)
        self._image_directory = ""
        self._last_pressed: dict[str, float] = {}
        """By condition: when it was last observed."""
        self._passed_since: dict[Threshold, float] = {}
        self._due: list[Threshold] = []
        """Thresholds for which pods were to be evicted at the last look."""
        self._not_before: dict[str, float] = {}
        """By pod uid: when it may be measured again."""
        self._woken = asyncio.Event()

    @property
    def pressures(self) -> tuple[str, ...]:
        """Conditions under which the node is at present."""
        return tuple(sorted(self._last_pressed))

    async def run(self) -> None:
        """Work until cancelled."""
        with contextlib.ExitStack() as stack:
            self._watch_memory(stack)
            while True:
                self._woken.clear()
                try:
                    evicted = await self._synchronize()
                except (OSError, RpcError) as error:
                    log.warning("cannot check node for eviction", extra={"error": str(error)})
                    evicted = []
                if evicted:
                    await self._wait_for_cleanup(evicted)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.period):
                        await self._woken.wait()

    def _watch_memory(self, stack: contextlib.ExitStack) -> None:
        try:
            pressure = stack.enter_context(contextlib.closing(self._machine.memory_pressure()))
        except LinuxError as error:
            log.info("memory pressure is only polled", extra={"error": str(error)})
            return

        def changed() -> None:
            if pressure.read():
                self._woken.set()

        loop = asyncio.get_running_loop()
        loop.add_reader(pressure.fileno(), changed)
        stack.callback(loop.remove_reader, pressure.fileno())

    async def look(self) -> tuple[list[Threshold], Mapping[str, Observation]]:
        """Observe the node and report its conditions. Returns the thresholds that are passed, soft ones only after
        their grace period, and those whose minimum reclaim is not available yet. Raises OSError."""
        observed = await self._observe()
        passed = met(self._thresholds, observed)
        passed = in_order({*passed, *unresolved(self._due, observed)})
        self._set_conditions(passed)
        now = self._clock.monotonic()
        self._passed_since = {threshold: self._passed_since.get(threshold, now) for threshold in passed}
        self._due = [
            threshold for threshold in passed if now - self._passed_since[threshold] >= (threshold.grace or 0.0)
        ]
        return self._due, observed

    async def _synchronize(self) -> list[EvictablePod]:
        """Returns the pods that were evicted."""
        passed, observed = await self.look()
        active = [candidate for candidate in self._pods() if candidate.active]
        self._not_before = {
            candidate.pod.uid: self._not_before.get(candidate.pod.uid, 0.0) for candidate in active
        }  # fmt: skip
        evicted = [candidate for candidate in active if await self._enforce_limits(candidate)]
        if evicted or not passed:
            return evicted
        resource = SIGNALS[passed[0].signal].resource
        log.warning("node is short of a resource", extra={"signal": passed[0].signal, "resource": resource})
        self._node.record(WARNING, "EvictionThresholdMet", f"Attempting to reclaim {resource}")
        if await self._reclaim_disk(passed[0]):
            log.info("node needs no eviction after removal of unused files", extra={"signal": passed[0].signal})
            return []
        return await self._evict_one(active, resource, passed, observed)

    async def _reclaim_disk(self, threshold: Threshold) -> bool:
        """Removes containers and files of finished pods, then unused images if they are on the disk that is full.
        Returns whether no threshold is passed then."""
        if SIGNALS[threshold.signal].condition != DISK:
            return False
        discarded = [candidate for candidate in self._pods() if candidate.discard()]
        if discarded:
            log.info("removing containers of finished pods", extra={"pods": len(discarded)})
            await self._wait_for_cleanup(discarded)
        if threshold.signal.startswith("imagefs") or await asyncio.to_thread(self._share_disk):
            try:
                await self._images.remove_unused()
            except (ImageGcFailed, RpcError) as error:
                log.warning("cannot reclaim disk from images", extra={"error": str(error)})
        return not met(self._thresholds, await self._observe())

    def _share_disk(self) -> bool:
        """Whether images and pods' files are on one file system."""
        directory = self._image_directory
        return bool(directory) and Path(directory).stat().st_dev == Path(self._node_settings.directory).stat().st_dev

    async def _observe(self) -> Mapping[str, Observation]:
        if not self._image_directory:
            with contextlib.suppress(RpcError):
                request = pb.ImageFsInfoRequest()
                answer = await self._cri.call(methods.IMAGE_FS_INFO, request, timeout=self._settings.call)
                self._image_directory = next((usage.fs_id.mountpoint for usage in answer.image_filesystems), "")
        return await asyncio.to_thread(self._look)

    def _look(self) -> Mapping[str, Observation]:
        left = self._machine.left(self._node_settings.directory)
        images = self._machine.left(self._image_directory) if self._image_directory else None
        return observations(self._node.facts.memory, left, images)

    def _set_conditions(self, passed: Iterable[Threshold]) -> None:
        now = self._clock.monotonic()
        oldest = now - self._settings.transition_period
        recent = {condition: time for condition, time in self._last_pressed.items() if time > oldest}
        self._last_pressed = recent | dict.fromkeys(pressed_conditions(passed), now)
        self._node.set_pressures(frozenset(self._last_pressed))

    async def _enforce_limits(self, candidate: EvictablePod) -> bool:
        """Returns whether a pod was evicted because it exceeds a limit of its own."""
        pod, began = candidate.pod, self._clock.monotonic()
        if not storage_limits.limited(pod) or is_critical(pod) or began < self._not_before[pod.uid]:
            return False
        used = await self._meter.measure(pod, candidate.observed)
        took = self._clock.monotonic() - began
        self._not_before[pod.uid] = began + self._settings.rest * took
        reason = storage_limits.exceeded(pod, used)
        if reason and candidate.active:
            self._evict(candidate, reason, disruption=False)
        return bool(reason)

    async def _evict_one(
        self,
        active: Sequence[EvictablePod],
        resource: str,
        passed: Sequence[Threshold],
        observed: Mapping[str, Observation],
    ) -> list[EvictablePod]:
        candidates = {candidate.pod.uid: candidate for candidate in active if not is_critical(candidate.pod)}
        usage = await self._usage(candidates, resource)
        for pod in ranking.rank([candidate.pod for candidate in candidates.values()], usage, resource):
            candidate = candidates[pod.uid]
            if candidate.active:
                reason = ranking.message(pod, usage.get(pod.uid), resource, passed, observed)
                hard = any(threshold.grace is None for threshold in passed if _reclaims(threshold, resource))
                self._evict(candidate, reason, disruption=True, soft=not hard)
                return [candidate]
        log.warning("cannot evict any pod", extra={"resource": resource})
        return []

    async def _usage(self, candidates: Mapping[str, EvictablePod], resource: str) -> dict[str, PodUsage]:
        if resource == "pids":
            counts = await self._meter.processes()
            return {uid: PodUsage(pids=counts[uid]) for uid in candidates if uid in counts}
        return {
            uid: await self._meter.measure(candidate.pod, candidate.observed) for uid, candidate in candidates.items()
        }

    def _evict(self, candidate: EvictablePod, reason: str, *, disruption: bool, soft: bool = False) -> None:
        log.warning("evicting pod from node", extra={"pod": candidate.pod.ref, "reason": reason})
        self._recorder.tell(candidate.pod, WARNING, "Evicted", reason)
        grace = self._settings.soft_grace if soft else self._settings.grace
        candidate.evict(reason, grace, disruption=disruption)

    async def _wait_for_cleanup(self, evicted: Iterable[EvictablePod]) -> None:
        """The next look must not see resources that are about to be free."""
        try:
            async with asyncio.timeout(self._settings.cleanup):
                for candidate in evicted:
                    await candidate.content_removed.wait()
        except TimeoutError:
            log.warning("removed pods are still on the node", extra={"seconds": self._settings.cleanup})


def _reclaims(threshold: Threshold, resource: str) -> bool:
    return SIGNALS[threshold.signal].resource == resource
