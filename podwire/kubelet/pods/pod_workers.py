"""All pods of this node: one worker for each, and the removal of orphans: pods that have no worker."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from podwire.kubelet.claims import ClaimManager
from podwire.kubelet.devices import DeviceManager
from podwire.kubelet.node.agent import NodeAgent
from podwire.kubelet.pods.admission import Host, Rejection, admit
from podwire.kubelet.pods.dependencies import PodDependencies
from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.pods.wakeups import Wakeups
from podwire.kubelet.pods.worker import PodWorker
from podwire.objects import pods
from podwire.objects.pods import Pod
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


class PodWorkers:
    """Knows pods by uid. `run` is the parent of all workers; pods are reported while it runs."""

    def __init__(
        self,
        dependencies: PodDependencies,
        wakeups: Wakeups,
        node: NodeAgent,
        devices: DeviceManager,
        claims: ClaimManager,
        host: Callable[[Pod], Host] = lambda _: Host(),
    ) -> None:
        """`host` is the machine as a pod's admission needs to know it."""
        self._deps = dependencies
        self._wakeups = wakeups
        self._workers: dict[str, PodWorker] = {}
        wakeups.workers = self._workers
        self._node = node
        self._devices = devices
        self._claims = claims
        self._host = host
        self._objects: dict[str, Object] = {}
        self._orphans: set[str] = set()
        self._tasks = asyncio.TaskGroup()
        self._synced = False

    async def run(self) -> None:
        """Work until cancelled."""
        async with self._tasks:
            while True:
                await self._wakeups.orphan_check.wait()
                self._wakeups.orphan_check.clear()
                self._collect_orphans()

    def present(self, object_: Object) -> None:
        """The API has this pod for this node, new or changed."""
        try:
            pod = pods.read(object_)
        except msgspec.ValidationError as error:
            log.warning("cannot read pod", extra={"pod": object_["metadata"].get("name"), "error": str(error)})
            return
        self._objects[pod.uid] = object_
        self._deps.statuses.update(pod, object_)
        worker = self._workers.get(pod.uid)
        if worker is None:
            worker = self._workers[pod.uid] = PodWorker(self._deps, pod, self._admit)
            self._tasks.create_task(self._run(worker), name=f"pod {pod.ref}")
        else:
            worker.update(pod)

    def absent(self, object_: Object) -> None:
        """The API does not have this pod any more."""
        worker = self._workers.get(object_["metadata"].get("uid", ""))
        if worker is not None:
            worker.deleted()

    def synced(self) -> None:
        """All pods have been reported: what the runtime or the disk has beyond them is orphaned."""
        self._synced = True
        self._wakeups.orphans_possible()

    def find(self, namespace: str, name: str) -> tuple[Pod, ObservedPod] | None:
        for worker in self._workers.values():
            if (worker.pod.namespace, worker.pod.name) == (namespace, name):
                return worker.pod, self._deps.cache.observed(worker.pod.uid)
        return None

    def all(self) -> list[tuple[Pod, Object]]:
        latest = self._deps.statuses.latest
        return [
            (worker.pod, {**self._objects[uid], "status": latest(uid)})
            for uid, worker in self._workers.items()
            if uid in self._objects
        ]

    def evictable(self) -> list[PodWorker]:
        return list(self._workers.values())

    async def _run(self, worker: PodWorker) -> None:
        try:
            await worker.run()
        finally:
            self._workers.pop(worker.pod.uid, None)
            self._objects.pop(worker.pod.uid, None)
            self._wakeups.resources_freed()

    def _admit(self, pod: Pod) -> Rejection | None:
        """A pod that does not fit only because others are still terminating waits instead of failing."""
        others = [
            worker
            for worker in self._workers.values()
            if worker.pod.uid != pod.uid and worker.admitted and not worker.ended
        ]
        rejection = self._check(pod, others)
        staying = [worker for worker in others if not worker.terminating.is_set()]
        if rejection is None or len(staying) == len(others):
            return rejection
        return replace(rejection, temporary=self._check(pod, staying) is None)

    def _check(self, pod: Pod, others: Sequence[PodWorker]) -> Rejection | None:
        running = [worker.pod for worker in others]
        return admit(pod, running, self._node.node, devices=self._devices.capacities, host=self._host(pod))

    def _collect_orphans(self) -> None:
        """Start the removal of what the runtime, the disk or a checkpoint has of pods that the API does not have."""
        if not self._synced or not self._deps.cache.complete.is_set():
            return  # `synced` and the first listing of the runtime ask for the check again
        known = self._deps.cache.uids | self._deps.volumes.uids() | self._devices.uids | self._claims.uids
        unowned, self._wakeups.unowned = self._wakeups.unowned, set()
        orphans = (known | unowned) - self._workers.keys()
        for uid in orphans - self._orphans:
            self._orphans.add(uid)
            self._tasks.create_task(self._remove_orphan(uid), name=f"orphan {uid}")
        if not orphans:
            self._claims.check_damaged(worker.pod for worker in self._workers.values())

    async def _remove_orphan(self, uid: str) -> None:
        """Remove everything of a pod that was deleted while no kubelet ran."""
        termination = self._deps.termination
        try:
            while uid not in self._workers:
                try:
                    observed = await self._deps.cache.refresh(uid)
                    await termination.stop_sandboxes(observed)
                    await termination.remove_pod(uid, observed)
                    await self._deps.cache.refresh(uid)
                except (RpcError, OSError) as error:
                    log.info("cannot remove orphaned pod yet", extra={"uid": uid, "error": str(error)})
                    await asyncio.sleep(self._deps.limits.orphan_retry)
                else:
                    log.info("removed orphaned pod", extra={"uid": uid})
                    return
        finally:
            self._orphans.discard(uid)
