"""All pods of this node: one worker for each, and the removal of orphans: pods that have no worker."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace

import msgspec

from podwire.kubelet.claims import ClaimManager
from podwire.kubelet.devices import DeviceManager
from podwire.kubelet.node.agent import NodeAgent
from podwire.kubelet.pods.admission import Host, Rejection, admit, resize_obstacle
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
        self._unreadable: set[str] = set()
        """Uids of pods that the API has and this kubelet cannot read: they have no worker and are not orphans."""
        self._removals: dict[str, asyncio.Task[None]] = {}
        """By uid of an orphaned pod, or id of a container without a sandbox."""
        self._tasks = asyncio.TaskGroup()
        self._synced = False
        self.on_end: Callable[[str], None] = lambda _: None
        """Called with the uid of each pod whose worker has ended."""

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
            self._unreadable.add(object_["metadata"].get("uid", ""))
            return
        self._unreadable.discard(pod.uid)
        self._objects[pod.uid] = object_
        self._deps.statuses.update(pod, object_)
        worker = self._workers.get(pod.uid)
        if worker is None:
            worker = self._workers[pod.uid] = PodWorker(
                self._deps, pod, self._admit, self._resize_obstacle, self._wakeups.resources_freed
            )
            self._tasks.create_task(self._run(worker), name=f"pod {pod.ref}")
        else:
            worker.update(pod)

    def absent(self, object_: Object) -> None:
        """The API does not have this pod any more."""
        uid = object_["metadata"].get("uid", "")
        worker = self._workers.get(uid)
        if worker is not None:
            worker.deleted()
        elif uid in self._unreadable:
            self._unreadable.discard(uid)
            self._wakeups.orphans_possible()

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
        uid = worker.pod.uid
        try:
            if uid in self._removals:  # the API had forgotten the pod, and has it again
                await asyncio.wait((self._removals[uid],))
            await worker.run()
        finally:
            self._workers.pop(uid, None)
            self._objects.pop(uid, None)
            self._wakeups.resources_freed()
            self._deps.cache.audit()
        self.on_end(uid)

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

    def _resize_obstacle(self, pod: Pod) -> tuple[str, str] | None:
        others = [worker.pod for worker in self._workers.values() if worker.admitted and not worker.ended]
        return resize_obstacle(pod, others, self._node.node)

    def _check(self, pod: Pod, others: Sequence[PodWorker]) -> Rejection | None:
        running = [worker.pod for worker in others]
        node = self._node.node
        if node is None and pod.static:
            node = self._node.own_node
        return admit(pod, running, node, devices=self._devices.capacities, host=self._host(pod))

    def _collect_orphans(self) -> None:
        """Start the removal of what the runtime, the disk or a checkpoint has of pods that the API does not have."""
        if not self._synced or not self._deps.cache.complete.is_set():
            return  # `synced` and the first listing of the runtime ask for the check again
        known = self._deps.cache.uids | self._left_on_node()
        orphans = (known | self._wakeups.unowned) - self._workers.keys() - self._unreadable
        self._wakeups.unowned &= self._removals.keys()  # looked at again after the removal that is under way
        for uid in orphans - self._removals.keys():
            self._remove(uid, self._remove_orphan(uid), name=f"orphan {uid}")
        for id_ in self._deps.cache.strays - self._removals.keys():
            self._remove(id_, self._remove_stray(id_), name=f"container {id_}")
        if not orphans:
            self._claims.check_damaged(worker.pod for worker in self._workers.values())

    def _remove(self, key: str, removal: Coroutine[None, None, None], *, name: str) -> None:
        """Begin a removal. Its own events may be of a pod that has come back: look again when it has ended."""

        def ended(_task: object) -> None:
            del self._removals[key]
            if key in self._wakeups.unowned:
                self._wakeups.orphans_possible()

        self._removals[key] = self._tasks.create_task(removal, name=name)
        self._removals[key].add_done_callback(ended)

    async def _remove_orphan(self, uid: str) -> None:
        """Remove everything of a pod that the API does not have, until nothing is left: it was deleted while no kubelet
        ran, or the runtime completed a call for it after its end."""
        retry = False
        while uid not in self._workers:
            if retry:
                await asyncio.sleep(self._deps.limits.orphan_retry)
            try:
                observed = await self._deps.cache.refresh(uid)
                if not observed.sandboxes and uid not in self._left_on_node():
                    return
                retry = True
                await self._deps.termination.stop_sandboxes(observed)
                await self._deps.termination.remove_pod(uid, observed)
                log.info("removed orphaned pod", extra={"uid": uid})
            except (RpcError, OSError) as error:
                retry = True
                log.info("cannot remove orphaned pod yet", extra={"uid": uid, "error": str(error)})
            except Exception:  # an error over one orphan must not end the work for all pods
                retry = True
                log.exception("cannot remove orphaned pod: unexpected error", extra={"uid": uid})

    def _left_on_node(self) -> set[str]:
        """Pods that have directories, devices, claims or a recorded allocation."""
        return self._deps.volumes.uids() | self._devices.uids | self._claims.uids | self._deps.allocations.uids

    async def _remove_stray(self, id_: str) -> None:
        """Remove a container that has no sandbox. The next listing shows whether it is gone."""
        try:
            await self._deps.termination.remove_stray(id_)
        except RpcError as error:
            log.info("cannot remove container without sandbox", extra={"container": id_, "error": str(error)})
            await asyncio.sleep(self._deps.limits.orphan_retry)
        except Exception:
            log.exception("cannot remove container without sandbox: unexpected error", extra={"container": id_})
            await asyncio.sleep(self._deps.limits.fault_retry)
        else:
            log.info("removed container without sandbox", extra={"container": id_})
        self._deps.cache.audit()
