"""Takes away pods that nobody else can: of nodes that are gone, never bound and deleted, or finished and too many."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from podwire.controllers.disruption import disrupted
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import NODES, PODS
from podwire.controllers.metadata import Seen, resource_of
from podwire.controllers.ports import Api
from podwire.controllers.timers import Alarms
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

PERIOD = 20.0
"""Seconds from a change to the look that takes care of it, and of all others by then."""
QUARANTINE = 40.0
"""Seconds for which a node must have been missed before its pods are."""
THRESHOLD = 12500
"""So many finished pods are kept."""
NAMED_NODES = 100
"""Of up to so many nodes the server is asked for pods of others only; above that, for all."""

FINISHED = ("Succeeded", "Failed")
_SWEEP = "sweep"


def selector_of_others(nodes: Iterable[str]) -> str:
    """Pods that are bound, and to none of these."""
    named = sorted(nodes)
    return ",".join(f"spec.nodeName!={each}" for each in ("", *(named if len(named) <= NAMED_NODES else ())))


def by_node(pods: Iterable[Object], nodes: Iterable[str]) -> dict[str, list[Object]]:
    """Pods of nodes that are not there."""
    there, found = set(nodes), dict[str, list[Object]]()
    for pod in pods:
        name = pod["spec"].get("nodeName", "")
        if name and name not in there:
            found.setdefault(name, []).append(pod)
    return found


def surplus(finished: Sequence[Object], threshold: int) -> list[Object]:
    """The oldest of them, as many as there are too many."""
    oldest = sorted(finished, key=_age)
    return oldest[: max(0, len(oldest) - threshold)]


def _age(pod: Object) -> tuple[str, str, str]:
    meta = pod["metadata"]
    return meta.get("creationTimestamp") or "", meta.get("namespace", ""), meta["name"]


def failed(pod: Object, now: str) -> Object | None:
    """A pod whose node is gone has failed, whatever its kubelet said last; None if it had ended before."""
    if (pod.get("status") or {}).get("phase") in FINISHED:
        return None
    changed = disrupted(pod, "DeletionByPodGC", "PodGC: node no longer exists", now) or pod
    return {**changed, "status": {**changed.get("status", {}), "phase": "Failed"}}


class PodGc:
    """Looks some time after pods have changed or a node has gone: once for all changes in that time."""

    def __init__(self, api: Api, graph: Graph, clock: Clock, threshold: int = THRESHOLD) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._threshold = threshold
        self._queue: WorkQueue[str] = WorkQueue("pod_gc", self._sweep, workers=1)
        self.alarms: Alarms[str] = Alarms(clock, self._queue.add)
        self._planned = False
        self._nodes: set[str] = set()
        self._missed: dict[str, float] = {}
        self._pods = 0
        self._deleting: set[str] = set()

    def saw(self, before: Seen | None, now: Seen | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(NODES):
            self._saw_node(latest.name, there=now is not None)
        elif latest.resource == resource_of(PODS):
            self._saw_pod(before, now)

    def _saw_node(self, name: str, *, there: bool) -> None:
        if there:
            self._nodes.add(name)
            self._missed.pop(name, None)
        else:
            self._nodes.discard(name)
            self._missed[name] = self.alarms.now()
            self._plan(QUARANTINE)

    def _saw_pod(self, before: Seen | None, now: Seen | None) -> None:
        self._pods += (now is not None) - (before is not None)
        if now is None:
            self._deleting.discard(before.uid if before else "")
            return
        if now.deleting:
            self._deleting.add(now.uid)
        self._plan(PERIOD)

    def completed(self) -> None:
        """Nothing waits for this: the first look comes long after."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self.alarms.run())

    def _plan(self, seconds: float) -> None:
        if not self._planned:
            self._planned = True
            self.alarms.set(_SWEEP, self.alarms.now() + seconds)

    async def _sweep(self, _key: str) -> None:
        self._planned = False
        if not self._graph.complete:
            self._plan(PERIOD)
            return
        await self._sweep_gone_nodes()
        await self._sweep_unbound()
        await self._sweep_finished()

    async def _sweep_gone_nodes(self) -> None:
        listed = await self._api.list(PODS, Scope(field_selector=selector_of_others(self._nodes)))
        orphans = by_node(listed.items, self._nodes)
        for name in self._missed.keys() - orphans.keys():
            del self._missed[name]
        for name, found in orphans.items():
            now = self.alarms.now()
            if now - self._missed.setdefault(name, now) < QUARANTINE:
                self._plan(PERIOD)
            elif await self._is_gone(name):
                log.info("node is gone, and so are its pods", extra={"node": name, "pods": len(found)})
                for pod in found:
                    await self._take(pod, failed(pod, rfc3339(self._clock.wall())))

    async def _is_gone(self, node: str) -> bool:
        """The server has the last word: a node may have come that we have not heard of."""
        try:
            await self._api.get(NODES, node)
        except ApiError as error:
            if error.code != 404:
                raise
            return True
        return False

    async def _sweep_unbound(self) -> None:
        """Pods that were deleted before they were bound: no kubelet lets them go."""
        if not self._deleting:
            return
        for pod in (await self._api.list(PODS, Scope(field_selector="spec.nodeName="))).items:
            if pod["metadata"].get("deletionTimestamp"):
                await self._take(pod)

    async def _sweep_finished(self) -> None:
        if self._pods <= self._threshold:
            return
        finished = [
            pod
            for phase in FINISHED
            for pod in (await self._api.list(PODS, Scope(field_selector=f"status.phase={phase}"))).items
        ]
        for pod in surplus(finished, self._threshold):
            await self._take(pod)

    async def _take(self, pod: Object, last: Object | None = None) -> None:
        """Delete it without waiting for anybody; first store its last status, if it has one."""
        meta = pod["metadata"]
        try:
            if last is not None:
                await self._api.replace(last, subresource="status")
            await self._api.delete(PODS, meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or changed: looked at again
                raise
