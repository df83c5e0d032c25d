"""Node lifecycle: a node that is not heard of any more is unreachable; taints follow how nodes are."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from podwire.controllers import node_health
from podwire.controllers.event_recorder import Teller
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import LEASES, NODES, PODS
from podwire.controllers.metadata import Seen, resource_of
from podwire.controllers.ports import Api
from podwire.controllers.timers import Alarms
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects.nodes import Taint, read
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError, Scope
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object, version_of

log = logging.getLogger(__name__)

GRACE = 40.0
"""Seconds after which a node that was not heard of has fallen silent: four renewals of its lease."""
PROMPT = 5.0
"""An answer that took longer came out of an outage, in which nobody could be heard."""
LEASE_NAMESPACE = "kube-node-lease"

Taints = Callable[[str, Sequence[Taint]], None]
"""Is told the taints of a node whenever it was looked at; none when it is gone."""


class NodeLife:
    """Looks at a node when it changes, and when nothing was heard of it for too long.

    A renewed lease is a sign of life, and so is a new report in the node's status. When it came is read from our own
    clock: what others write about the time does not matter. While the API cannot be asked, silence means nothing.
    """

    def __init__(self, api: Api, graph: Graph, clock: Clock, taints: Taints) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._taints = taints
        self._teller = Teller(api, clock, "node-controller")
        self._queue: WorkQueue[str] = WorkQueue("nodes", self._attend)
        self.alarms: Alarms[str] = Alarms(clock, self._queue.add)
        self._heard: dict[str, float] = {}
        self._leases: dict[str, str] = {}
        self._reports: dict[str, str] = {}
        self._failing: set[str] = set()

    def saw(self, before: Seen | None, now: Seen | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(NODES):
            if self._graph.complete:
                self._queue.add(latest.name)
            else:
                self._hear(latest.name)
        elif now is not None and now.resource == resource_of(LEASES) and now.namespace == LEASE_NAMESPACE:
            self._renewed(now.name, now.metadata.resource_version)

    def completed(self) -> None:
        for each in self._heard:
            self._queue.add(each)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self.alarms.run())

    def _renewed(self, name: str, version: str) -> None:
        if self._leases.get(name) != version:
            self._leases[name] = version
            if name in self._heard:
                self._hear(name)

    def _hear(self, name: str) -> None:
        now = self.alarms.now()
        self._heard[name] = now
        self.alarms.set(name, now + GRACE)

    def _forget(self, name: str) -> None:
        for each in (self._heard, self._leases, self._reports):
            each.pop(name, None)
        self._failing.discard(name)
        self.alarms.cancel(name)
        self._taints(name, ())

    async def _attend(self, name: str) -> None:
        try:
            await self._look_at(name)
        except ClientError:
            self._deaf()
            raise
        except ApiError as error:
            if error.code >= 500:
                self._deaf()
            raise

    def _deaf(self) -> None:
        """Who cannot be asked cannot be heard either: every node gets its full time from now on."""
        for each in self._heard:
            self._hear(each)

    async def _look_at(self, name: str) -> None:
        """1. Hear what it says.   2. If it fell silent, say so.   3. Taints.   4. Its pods are not ready either."""
        asked = self.alarms.now()
        try:
            node = await self._api.get(NODES, name)
        except ApiError as error:
            if error.code != 404:
                raise
            self._forget(name)
            return
        if self.alarms.now() - asked > PROMPT:
            self._deaf()
        await self._listen(name, node)
        if await self._is_silent(name):
            node = await self._mark_silent(node)
        node = await self._taint(node)
        self._taints(name, read(node).spec.taints)
        await self._mark_pods(node)

    async def _listen(self, name: str, node: Object) -> None:
        new = name not in self._heard
        report = node_health.heartbeat(node)
        if new or self._reports.get(name) != report:
            self._reports[name] = report
            self._hear(name)
        if new:
            told = f"Node {name} event: Registered Node {name} in Controller"
            await self._teller.tell(node, NORMAL, "RegisteredNode", told)

    async def _is_silent(self, name: str) -> bool:
        """The lease itself has the last word: what we are told of changes may be late."""
        if self.alarms.now() - self._heard[name] < GRACE:
            return False
        try:
            lease = await self._api.get(LEASES, name, LEASE_NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
        else:
            self._renewed(name, version_of(lease))
        return self.alarms.now() - self._heard[name] >= GRACE

    async def _mark_silent(self, node: Object) -> Object:
        changed = node_health.fallen_silent(node, self._now())
        if changed is None:
            return node
        name = node["metadata"]["name"]
        log.warning("node fell silent", extra={"node": name})
        self._reports[name] = node_health.heartbeat(changed)  # ours is no sign of life
        return await self._api.replace(changed, subresource="status")

    async def _taint(self, node: Object) -> Object:
        changed = node_health.tainted(node, self._now())
        return node if changed is None else await self._api.replace(changed)

    async def _mark_pods(self, node: Object) -> None:
        """Once for each time that the node stops being ready: a kubelet that lives knows better how its pods are."""
        name = node["metadata"]["name"]
        if node_health.is_ready(node):
            self._failing.discard(name)
            return
        if name in self._failing or node_health.condition(node, node_health.READY) is None:
            return
        for pod in (await self._api.list(PODS, Scope(field_selector=f"spec.nodeName={name}"))).items:
            changed = node_health.not_ready_pod(pod, self._now())
            if changed is not None:
                await self._mark_pod(changed)
        await self._teller.tell(node, NORMAL, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        self._failing.add(name)

    async def _mark_pod(self, pod: Object) -> None:
        try:
            await self._api.replace(pod, subresource="status")
        except ApiError as error:
            if error.code != 404:
                raise
            return
        await self._teller.tell(pod, WARNING, "NodeNotReady", "Node is not ready")

    def _now(self) -> str:
        return rfc3339(self._clock.wall())
