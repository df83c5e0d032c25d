"""All pods of this node: a worker for each, and the end of what belongs to none."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from podwire.kubelet.node import NodeAgent
from podwire.kubelet.pods.admission import Rejection, admit
from podwire.kubelet.pods.dependencies import Kit
from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.pods.termination import PodTermination
from podwire.kubelet.pods.worker import PodWorker
from podwire.objects import pods
from podwire.objects.pods import Pod
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Until something that could not be removed is tried again."""


class PodWorkers:
    """Knows pods by uid. `run` is the parent of all workers."""

    def __init__(self) -> None:
        self._workers: dict[str, PodWorker] = {}
        self._objects: dict[str, Object] = {}
        self._orphans: set[str] = set()
        self._group: asyncio.TaskGroup | None = None
        self._kit: Kit | None = None
        self._node: NodeAgent | None = None
        self._synced = False

    async def run(self, kit: Kit, node: NodeAgent) -> None:
        """Work until cancelled."""
        self._kit, self._node = kit, node
        async with asyncio.TaskGroup() as group:
            self._group = group
            await asyncio.Event().wait()

    def present(self, object_: Object) -> None:
        """The API has this pod for us, new or changed."""
        try:
            pod = pods.read(object_)
        except msgspec.ValidationError as error:
            log.warning("pod not understood", extra={"pod": object_["metadata"].get("name"), "why": str(error)})
            return
        self._objects[pod.uid] = object_
        assert self._kit is not None  # noqa: S101 - run comes first
        self._kit.reports.saw(pod, object_)
        worker = self._workers.get(pod.uid)
        if worker is None:
            self._begin(pod)
        else:
            worker.update(pod)

    def absent(self, object_: Object) -> None:
        """The API has it no more."""
        worker = self._workers.get(object_["metadata"].get("uid", ""))
        if worker is not None:
            worker.deleted()

    def synced(self) -> None:
        """All pods have been told: what the runtime or the disk has beyond them belongs to none."""
        self._synced = True
        self.look_for_orphans()

    def look_for_orphans(self) -> None:
        if self._kit is None or not self._synced or not self._kit.view.complete.is_set():
            return
        left = self._kit.view.uids | self._kit.volumes.left() | self._kit.devices.uids | self._kit.claims.uids
        orphans = left - self._workers.keys()
        for uid in orphans:
            self._orphaned(uid)
        if not orphans:
            self._kit.claims.look_for_lost(each.pod for each in self._workers.values())

    def runtime_changed(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            self._may_work(worker)
            worker.wake(look=True)
        elif self._synced:
            self._orphaned(uid)

    def _may_work(self, worker: PodWorker) -> None:
        """A runtime that tells of a pod that has no sandbox means that making one makes sense again."""
        assert self._kit is not None  # noqa: S101 - run comes first
        if not self._kit.view.observed(worker.pod.uid).sandboxes:
            worker.memory.sandbox_may_work()

    def references_changed(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if (worker := self._workers.get(uid)) is not None:
                worker.memory.may_start()
                worker.wake()

    def probe_changed(self, uid: str) -> None:
        if (worker := self._workers.get(uid)) is not None:
            worker.wake()

    def network_changed(self) -> None:
        """A sandbox that could not be made may be possible now."""
        for each in self._workers.values():
            each.memory.sandbox_may_work()
            each.wake()

    def devices_changed(self) -> None:
        """Devices came, or are free: whoever waits for some tries again."""
        for each in self._workers.values():
            if each.memory.waits_for_devices:
                each.memory.may_start()
                each.wake()

    def claims_changed(self) -> None:
        """Drivers came, or let go of something: whoever waits for claims tries again."""
        for uid, worker in self._workers.items():
            if worker.memory.waits_for_claims:
                self.claim_changed(uid)

    def claim_changed(self, uid: str) -> None:
        """What that pod has by its claims, or waits for, is not as it was."""
        if (worker := self._workers.get(uid)) is not None:
            if worker.memory.waits_for_claims:
                worker.memory.may_start()
            worker.wake()

    def device_changed(self, uid: str, trouble: str) -> None:
        """Devices of that pod are not as they were."""
        if (worker := self._workers.get(uid)) is not None and self._kit is not None:
            if trouble:
                self._kit.recorder.tell(worker.pod, WARNING, "DeviceUnhealthy", trouble)
            worker.wake()

    def pod(self, uid: str) -> Pod | None:
        return self._workers[uid].pod if uid in self._workers else None

    def find(self, namespace: str, name: str) -> tuple[Pod, ObservedPod] | None:
        for each in self._workers.values():
            if (each.pod.namespace, each.pod.name) == (namespace, name) and self._kit is not None:
                return each.pod, self._kit.view.observed(each.pod.uid)
        return None

    def all(self) -> list[tuple[Pod, Object]]:
        assert self._kit is not None  # noqa: S101 - run comes first
        latest = self._kit.reports.latest
        return [
            (each.pod, {**self._objects[uid], "status": latest(uid)})
            for uid, each in self._workers.items()
            if uid in self._objects
        ]

    def _begin(self, pod: Pod) -> None:
        assert self._kit is not None  # noqa: S101 - run comes first
        assert self._group is not None  # noqa: S101 - run comes first
        worker = self._workers[pod.uid] = PodWorker(self._kit, pod, self._admit)
        self._group.create_task(self._work(worker), name=f"pod {pod.ref}")

    async def _work(self, worker: PodWorker) -> None:
        try:
            await worker.run()
        finally:
            self._workers.pop(worker.pod.uid, None)
            self._objects.pop(worker.pod.uid, None)
            for each in self._workers.values():
                if not each.taken:  # it may have waited for what this one had
                    each.wake()

    def _admit(self, pod: Pod) -> Rejection | None:
        """A pod that has no room only as long as others are ending is not rejected for good."""
        others = [each for each in self._workers.values() if each.pod.uid != pod.uid and each.taken and not each.ended]
        rejection = self._judged(pod, others)
        staying = [each for each in others if not each.to_end.is_set()]
        if rejection is None or len(staying) == len(others):
            return rejection
        return replace(rejection, passes=self._judged(pod, staying) is None)

    def _judged(self, pod: Pod, others: Sequence[PodWorker]) -> Rejection | None:
        node = self._node.node if self._node is not None else None
        devices = self._kit.devices.capacities if self._kit is not None else {}
        return admit(pod, [each.pod for each in others], node, devices=devices)

    def _orphaned(self, uid: str) -> None:
        if uid in self._orphans or self._group is None:
            return
        self._orphans.add(uid)
        self._group.create_task(self._end_orphan(uid), name=f"orphan {uid}")

    async def _end_orphan(self, uid: str) -> None:
        """A pod that went while nobody looked: what is left of it goes too."""
        assert self._kit is not None  # noqa: S101 - run comes first
        ending = PodTermination(self._kit)
        try:
            while uid not in self._workers:
                try:
                    observed = await self._kit.view.look(uid)
                    await ending.sandboxes(observed)
                    await ending.remove(uid, observed)
                    await self._kit.view.look(uid)
                except (RpcError, OSError) as error:
                    log.info("orphan not removed yet", extra={"uid": uid, "why": str(error)})
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    log.info("orphan removed", extra={"uid": uid})
                    return
        finally:
            self._orphans.discard(uid)
