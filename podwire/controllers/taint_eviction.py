"""Pods leave nodes with NoExecute taints that they do not tolerate, at once or when their patience is over."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podwire.controllers.disruption import take_away
from podwire.controllers.event_recorder import Teller
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import PODS
from podwire.controllers.metadata import Seen, resource_of
from podwire.controllers.node_health import NO_EXECUTE
from podwire.controllers.ports import Api
from podwire.controllers.timers import Alarms
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects import pods
from podwire.objects.nodes import Taint
from podwire.objects.pods import Toleration
from podwire.objects.taints import tolerates
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.client_side.events import NORMAL
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


def patience(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """Seconds that a pod stays on a node with these taints: 0 if it does not tolerate one of them, None for ever."""
    limits = []
    for taint in taints:
        toleration = next((each for each in tolerations if tolerates(each, taint)), None)
        if toleration is None:
            return 0.0
        if toleration.toleration_seconds is not None:
            limits.append(max(0.0, float(toleration.toleration_seconds)))
    return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A pod that will have to go. Its patience is counted from when we first saw that, however taints change since."""

    node: str
    since: float


class Evictions:
    """While no node has such a taint, pods are not looked at. Then those of that node are, and others as they change.

    A pod never moves, so one that was found on a node without such taints is of no interest until that node gets one.
    """

    def __init__(self, api: Api, graph: Graph, clock: Clock) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._teller = Teller(api, clock, "taint-eviction-controller")
        self._nodes: WorkQueue[str] = WorkQueue("evictions", self._attend_node, workers=2)
        self._pods: WorkQueue[str] = WorkQueue("evictions", self._attend_pod)
        self.alarms: Alarms[str] = Alarms(clock, self._pods.add)
        self._tainted: dict[str, tuple[Taint, ...]] = {}
        self._leaving: dict[str, _Leaving] = {}
        self._settled: set[str] = set()

    def tainted(self, node: str, taints: Sequence[Taint]) -> None:
        """The taints of a node; told again and again."""
        found = tuple(each for each in taints if each.effect == NO_EXECUTE)
        if found == self._tainted.get(node, ()):
            return
        if found:
            self._tainted[node] = found
        else:
            del self._tainted[node]
        self._nodes.add(node)

    def saw(self, before: Seen | None, now: Seen | None) -> None:
        latest = now or before
        if latest is None or latest.resource != resource_of(PODS):
            return
        if now is None:
            self._stay(latest.uid)
            self._settled.discard(latest.uid)
        elif self._tainted and now.uid not in self._settled:
            self._pods.add(now.uid)

    def completed(self) -> None:
        """Nothing waits for this: the pods of a tainted node are asked for when its taints are told."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._nodes.run())
            parts.create_task(self._pods.run())
            parts.create_task(self.alarms.run())

    async def _attend_node(self, name: str) -> None:
        if name not in self._tainted:
            for uid in [uid for uid, each in self._leaving.items() if each.node == name]:
                await self._relent(uid)
            return
        for pod in (await self._api.list(PODS, Scope(field_selector=f"spec.nodeName={name}"))).items:
            await self._judge(pod)

    async def _attend_pod(self, uid: str) -> None:
        seen = self._graph.node(uid)
        if seen is None:
            return
        pod = await self._get(seen)
        if pod is not None:
            await self._judge(pod)

    async def _get(self, seen: Seen) -> Object | None:
        try:
            pod = await self._api.get(PODS, seen.name, seen.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        return pod if pod["metadata"]["uid"] == seen.uid else None

    async def _judge(self, object_: Object) -> None:
        """Let it stay, let it wait, or evict it."""
        pod = pods.read(object_)
        node, uid = pod.spec.node_name, pod.uid
        taints = self._tainted.get(node, ())
        seconds = patience(taints, pod.spec.tolerations)
        if not taints or seconds is None or pod.deleting:
            if node:
                self._settled.add(uid)
            if not pod.deleting and uid in self._leaving:
                await self._relent(uid)
            self._stay(uid)
            return
        now = self.alarms.now()
        leaving = self._leaving.setdefault(uid, _Leaving(node, now))
        self._settled.discard(uid)
        if now >= leaving.since + seconds:
            await self._evict(object_)
        else:
            self.alarms.set(uid, leaving.since + seconds)

    def _stay(self, uid: str) -> None:
        self._leaving.pop(uid, None)
        self.alarms.cancel(uid)

    async def _relent(self, uid: str) -> None:
        self._stay(uid)
        seen = self._graph.node(uid)
        if seen is None or seen.deleting:
            return
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": _meta(seen)}
        told = f"Cancelling deletion of Pod {seen.namespace}/{seen.name}"
        await self._teller.tell(about, NORMAL, "TaintManagerEviction", told)

    async def _evict(self, pod: Object) -> None:
        meta = pod["metadata"]
        ref = f"{meta['namespace']}/{meta['name']}"
        log.info("evicting", extra={"pod": ref})
        message = "Taint manager: deleting due to NoExecute taint"
        if await take_away(self._api, pod, "DeletionByTaintManager", message, rfc3339(self._clock.wall())):
            await self._teller.tell(pod, NORMAL, "TaintManagerEviction", f"Marking for deletion Pod {ref}")
        self._stay(meta["uid"])


def _meta(seen: Seen) -> Object:
    return {"name": seen.name, "namespace": seen.namespace, "uid": seen.uid}
