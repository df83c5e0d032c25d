"""Evicts pods from nodes with NoExecute taints that they do not tolerate, at once or after their toleration."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from podwire.controllers.disruption import disrupt
from podwire.controllers.event_recorder import EventRecorder
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import PODS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.node_health import NO_EXECUTE
from podwire.controllers.timers import Timers
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects import pods
from podwire.objects.nodes import Taint
from podwire.objects.pods import Toleration
from podwire.objects.taints import tolerates
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.client_side.events import NORMAL
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


def tolerated_seconds(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """Returns the seconds that a pod stays on a node with these taints: 0 if one is not tolerated, None for ever."""
    limits = []
    for taint in taints:
        toleration = next((candidate for candidate in tolerations if tolerates(candidate, taint)), None)
        if toleration is None:
            return 0.0
        if toleration.toleration_seconds is not None:
            limits.append(max(0.0, float(toleration.toleration_seconds)))
    return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class _PendingEviction:
    """A pod with a pending eviction. Its toleration counts from the first observation, however taints change since."""

    node: str
    since: float


class Evictions:
    """Evicts pods by node taints. While no node has such a taint, pods are not read; then those of that node are, and
    others as they change.

    A pod never moves, so a pod on a node without such taints is not checked again until its node gets one.
    """

    resources: ClassVar = frozenset(map(resource_of, (PODS,)))

    def __init__(self, api: Client, graph: Graph, clock: Clock) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._recorder = EventRecorder(api, clock, "taint-eviction-controller")
        self._nodes: WorkQueue[str] = WorkQueue("evictions", self._reconcile_node, workers=2)
        self._pods: WorkQueue[str] = WorkQueue("evictions", self._reconcile_pod)
        self.timers: Timers[str] = Timers(clock, self._pods.add)
        self._tainted: dict[str, tuple[Taint, ...]] = {}
        self._pending: dict[str, _PendingEviction] = {}
        self._done: set[str] = set()

    def tainted(self, node: str, taints: Sequence[Taint]) -> None:
        """Sets the taints of a node; called repeatedly."""
        found = tuple(taint for taint in taints if taint.effect == NO_EXECUTE)
        if found == self._tainted.get(node, ()):
            return
        if found:
            self._tainted[node] = found
        else:
            del self._tainted[node]
        self._nodes.add(node)

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None or latest.resource != resource_of(PODS):
            return
        if now is None:
            self._forget_pod(latest.uid)
            self._done.discard(latest.uid)
        elif self._tainted and now.uid not in self._done:
            self._pods.add(now.uid)

    def on_synced(self) -> None:
        """Nothing to do: the pods of a tainted node are listed when its taints are set."""

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._nodes.run())
            parts.create_task(self._pods.run())
            parts.create_task(self.timers.run())

    async def _reconcile_node(self, name: str) -> None:
        if name not in self._tainted:
            for uid in [uid for uid, pending in self._pending.items() if pending.node == name]:
                await self._cancel_eviction(uid)
            return
        for pod in (await self._api.list(PODS, Scope(field_selector=f"spec.nodeName={name}"))).items:
            await self._check(pod)

    async def _reconcile_pod(self, uid: str) -> None:
        seen = self._graph.node(uid)
        if seen is None:
            return
        pod = await self._get(seen)
        if pod is not None:
            await self._check(pod)

    async def _get(self, seen: PartialObject) -> Object | None:
        try:
            pod = await self._api.get(PODS, seen.name, seen.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        return pod if pod["metadata"]["uid"] == seen.uid else None

    async def _check(self, object_: Object) -> None:
        """Keeps the pod, waits, or evicts it."""
        pod = pods.read(object_)
        node, uid = pod.spec.node_name, pod.uid
        taints = self._tainted.get(node, ())
        seconds = tolerated_seconds(taints, pod.spec.tolerations)
        if not taints or seconds is None or pod.deleting:
            if node:
                self._done.add(uid)
            if not pod.deleting and uid in self._pending:
                await self._cancel_eviction(uid)
            self._forget_pod(uid)
            return
        now = self.timers.now()
        leaving = self._pending.setdefault(uid, _PendingEviction(node, now))
        self._done.discard(uid)
        if now >= leaving.since + seconds:
            await self._evict(object_)
        else:
            self.timers.set(uid, leaving.since + seconds)

    def _forget_pod(self, uid: str) -> None:
        self._pending.pop(uid, None)
        self.timers.cancel(uid)

    async def _cancel_eviction(self, uid: str) -> None:
        self._forget_pod(uid)
        seen = self._graph.node(uid)
        if seen is None or seen.deleting:
            return
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": _meta(seen)}
        message = f"Cancelling deletion of Pod {seen.namespace}/{seen.name}"
        await self._recorder.record(about, NORMAL, "TaintManagerEviction", message)

    async def _evict(self, pod: Object) -> None:
        meta = pod["metadata"]
        ref = f"{meta['namespace']}/{meta['name']}"
        log.info("evicting pod from tainted node", extra={"pod": ref})
        message = "Taint manager: deleting due to NoExecute taint"
        if await disrupt(self._api, pod, "DeletionByTaintManager", message, rfc3339(self._clock.wall())):
            await self._recorder.record(pod, NORMAL, "TaintManagerEviction", f"Marking for deletion Pod {ref}")
        self._forget_pod(meta["uid"])


def _meta(seen: PartialObject) -> Object:
    return {"name": seen.name, "namespace": seen.namespace, "uid": seen.uid}
