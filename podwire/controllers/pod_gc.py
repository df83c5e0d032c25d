"""Pod garbage collection: pods of deleted nodes, pods deleted before they were bound, and surplus finished pods.

Terminating pods of a node that is not ready and has the taint node.kubernetes.io/out-of-service are deleted, too: its
administrator says by the taint that the node is shut down, so that no kubelet ends them.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import ClassVar

from podwire.controllers.disruption import with_disruption_target
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import NODES, PODS
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.timers import Timers
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

NAMED_NODES = 100
"""Up to this number of nodes the field selector excludes them by name; above it all pods are listed."""

FINISHED = ("Succeeded", "Failed")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_SWEEP = "sweep"


def selector_of_others(nodes: Iterable[str]) -> str:
    """Returns a field selector of bound pods on other nodes."""
    named = sorted(nodes)
    return ",".join(f"spec.nodeName!={node}" for node in ("", *(named if len(named) <= NAMED_NODES else ())))


def by_node(pods: Iterable[Object], nodes: Iterable[str]) -> dict[str, list[Object]]:
    """Groups pods by nodes that do not exist."""
    there, found = set(nodes), dict[str, list[Object]]()
    for pod in pods:
        name = pod["spec"].get("nodeName", "")
        if name and name not in there:
            found.setdefault(name, []).append(pod)
    return found


def surplus(finished: Sequence[Object], threshold: int) -> list[Object]:
    """Returns the oldest finished pods above the threshold."""
    oldest = sorted(finished, key=_age)
    return oldest[: max(0, len(oldest) - threshold)]


def _age(pod: Object) -> tuple[str, str, str]:
    meta = pod["metadata"]
    return meta.get("creationTimestamp") or "", meta.get("namespace", ""), meta["name"]


def is_out_of_service(node: Object) -> bool:
    """Returns whether a node is not ready and has the taint."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(row.get("type") == "Ready" and row.get("status") == "True" for row in conditions)
    taints = (node.get("spec") or {}).get("taints") or ()
    return not ready and any(taint.get("key") == OUT_OF_SERVICE for taint in taints)


def ended(pod: Object) -> Object | None:
    """Returns the pod as failed; None if it had finished before."""
    status = pod.get("status") or {}
    return None if status.get("phase") in FINISHED else {**pod, "status": {**status, "phase": "Failed"}}


def failed(pod: Object, now: str) -> Object | None:
    """Returns the pod as failed because its node is deleted; None if it had finished before."""
    return ended(with_disruption_target(pod, "DeletionByPodGC", "PodGC: node no longer exists", now) or pod)


class PodGc:
    """Sweeps some time after pods have changed or a node was deleted: once for all changes in that time."""

    resources: ClassVar = frozenset(map(resource_of, (NODES, PODS)))

    def __init__(self, api: Client, graph: Graph, clock: Clock, limits: Limits = DEFAULT) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._limits = limits
        self._queue: WorkQueue[str] = WorkQueue("pod_gc", self._sweep, workers=1)
        self.timers: Timers[str] = Timers(clock, self._queue.add)
        self._scheduled = False
        self._nodes: set[str] = set()
        self._missing_since: dict[str, float] = {}
        self._pods = 0
        self._deleting: set[str] = set()
        self._out_of_service: set[str] = set()
        """The names of nodes that may be out of service: their JSON contains the taint's key."""

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(NODES):
            self._saw_node(latest.name, there=now is not None)
            if now is not None and OUT_OF_SERVICE.encode() in now.json:
                self._out_of_service.add(now.name)
                self._schedule(self._limits.pod_gc_period)
            else:
                self._out_of_service.discard(latest.name)
        elif latest.resource == resource_of(PODS):
            self._saw_pod(before, now)

    def _saw_node(self, name: str, *, there: bool) -> None:
        if there:
            self._nodes.add(name)
            self._missing_since.pop(name, None)
        else:
            self._nodes.discard(name)
            self._missing_since[name] = self.timers.now()
            self._schedule(self._limits.node_grace)

    def _saw_pod(self, before: PartialObject | None, now: PartialObject | None) -> None:
        self._pods += (now is not None) - (before is not None)
        if now is None:
            self._deleting.discard(before.uid if before else "")
            return
        if now.deleting:
            self._deleting.add(now.uid)
        self._schedule(self._limits.pod_gc_period)

    def on_synced(self) -> None:
        """Nothing to do: the first sweep comes later."""

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self.timers.run())

    def _schedule(self, seconds: float) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.timers.set(_SWEEP, self.timers.now() + seconds)

    async def _sweep(self, _key: str) -> None:
        self._scheduled = False
        if not self._graph.complete:
            self._schedule(self._limits.pod_gc_period)
            return
        await self._sweep_gone_nodes()
        await self._sweep_out_of_service()
        await self._sweep_unbound()
        await self._sweep_finished()

    async def _sweep_gone_nodes(self) -> None:
        listed = await self._api.list(PODS, Scope(field_selector=selector_of_others(self._nodes)))
        orphans = by_node(listed.items, self._nodes)
        for name in self._missing_since.keys() - orphans.keys():
            del self._missing_since[name]
        for name, found in orphans.items():
            now = self.timers.now()
            if now - self._missing_since.setdefault(name, now) < self._limits.node_grace:
                self._schedule(self._limits.pod_gc_period)
            elif await self._is_gone(name):
                log.info("deleting pods of a deleted node", extra={"node": name, "pods": len(found)})
                for pod in found:
                    await self._take(pod, failed(pod, rfc3339(self._clock.wall())))

    async def _is_gone(self, node: str) -> bool:
        """Asks the server whether a node is deleted: it may have been created without our knowledge."""
        try:
            await self._api.get(NODES, node)
        except ApiError as error:
            if error.code != 404:
                raise
            return True
        return False

    async def _sweep_out_of_service(self) -> None:
        for name in sorted(self._out_of_service) if self._deleting else ():
            node = self._graph.find(NODES, name)
            if node is None or not is_out_of_service(node.object()):
                continue
            listed = await self._api.list(PODS, Scope(field_selector=f"spec.nodeName={name}"))
            for pod in listed.items:
                if pod["metadata"].get("deletionTimestamp"):
                    ref = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                    log.info("deleting a pod of a node out of service", extra={"node": name, "pod": ref})
                    await self._take(pod, ended(pod))

    async def _sweep_unbound(self) -> None:
        """Deletes pods that were deleted before they were bound: no kubelet terminates them."""
        if not self._deleting:
            return
        for pod in (await self._api.list(PODS, Scope(field_selector="spec.nodeName="))).items:
            if pod["metadata"].get("deletionTimestamp"):
                await self._take(pod)

    async def _sweep_finished(self) -> None:
        if self._pods <= self._limits.finished_pods:
            return
        finished = [
            pod
            for phase in FINISHED
            for pod in (await self._api.list(PODS, Scope(field_selector=f"status.phase={phase}"))).items
        ]
        for pod in surplus(finished, self._limits.finished_pods):
            await self._take(pod)

    async def _take(self, pod: Object, last: Object | None = None) -> None:
        """Deletes a pod without a grace period, after storing its last status, if any."""
        meta = pod["metadata"]
        try:
            if last is not None:
                await self._api.replace(last, subresource="status")
            await self._api.delete(PODS, meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):  # deleted, or changed and checked again
                raise
