"""Node lifecycle: marks nodes without heartbeats as unreachable, and sets the taints of their conditions."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import ClassVar

from podwire.controllers import node_health, zone_disruption
from podwire.controllers.event_recorder import EventRecorder
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import LEASES, NODES, PODS
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.timers import Timers
from podwire.controllers.work_queue import WorkQueue
from podwire.controllers.zone_disruption import Zones
from podwire.interfaces import Clock
from podwire.objects.nodes import Taint, read
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object, version_of

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"

Taints = Callable[[str, Sequence[Taint]], None]
"""Called with a node's taints after each reconciliation; empty when the node is deleted."""


class NodeLife:
    """Reconciles a node when it changes, and when its heartbeat is overdue.

    A renewed lease or a new report in the node's status is a heartbeat. Its time is read from our own clock; times that
    others write do not matter. While the API cannot be reached, missing heartbeats do not count.
    """

    resources: ClassVar = frozenset(map(resource_of, (NODES, LEASES)))

    def __init__(self, api: Client, graph: Graph, clock: Clock, taints: Taints, limits: Limits = DEFAULT) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._taints = taints
        self._limits = limits
        self._recorder = EventRecorder(api, clock, "node-controller")
        self._queue: WorkQueue[str] = WorkQueue("nodes", self._reconcile)
        self.timers: Timers[str] = Timers(clock, self._queue.add)
        self._last_heartbeat: dict[str, float] = {}
        self._leases: dict[str, str] = {}
        self._reports: dict[str, str] = {}
        self._not_ready: set[str] = set()
        self._zones = Zones(limits)
        self.turns: Timers[str] = Timers(clock, self._queue.add)
        """When a node that waits for its turn to be tainted is looked at again."""

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(NODES):
            if self._graph.complete:
                self._queue.add(latest.name)
            else:
                self._record_heartbeat(latest.name)
        elif now is not None and now.resource == resource_of(LEASES) and now.namespace == LEASE_NAMESPACE:
            self._renewed(now.name, now.metadata.resource_version)

    def on_synced(self) -> None:
        for node in self._last_heartbeat:
            self._queue.add(node)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self.timers.run())
            parts.create_task(self.turns.run())

    def _renewed(self, name: str, version: str) -> None:
        if self._leases.get(name) != version:
            self._leases[name] = version
            if name in self._last_heartbeat:
                self._record_heartbeat(name)

    def _record_heartbeat(self, name: str) -> None:
        now = self.timers.now()
        self._last_heartbeat[name] = now
        self.timers.set(name, now + self._limits.heartbeat_grace)

    def _forget(self, name: str) -> None:
        for table in (self._last_heartbeat, self._leases, self._reports):
            table.pop(name, None)
        self._not_ready.discard(name)
        self.timers.cancel(name)
        self.turns.cancel(name)
        was_disrupted = self._zones.is_all_disrupted
        if self._zones.forget(name):
            self._on_new_states(was_disrupted=was_disrupted)
        self._taints(name, ())

    async def _reconcile(self, name: str) -> None:
        try:
            await self._enqueue(name)
        except ClientError:
            self._reset_deadlines()
            raise
        except ApiError as error:
            if error.code >= 500:
                self._reset_deadlines()
            raise

    def _reset_deadlines(self) -> None:
        """Restarts all deadlines: while the API is unreachable, no heartbeat can arrive."""
        for node in self._last_heartbeat:
            self._record_heartbeat(node)

    async def _enqueue(self, name: str) -> None:
        """Reconciles a node.

        1. Record its heartbeat.  2. If it is unresponsive, set its conditions to Unknown.  3. Set taints.  4. Mark its
        pods as not ready.
        """
        asked = self.timers.now()
        try:
            node = await self._api.get(NODES, name)
        except ApiError as error:
            if error.code != 404:
                raise
            self._forget(name)
            return
        if self.timers.now() - asked > self._limits.max_latency:
            self._reset_deadlines()
        await self._observe(name, node)
        if await self._is_unresponsive(name):
            node = await self._mark_unknown(node)
        self._observe_zone(node)
        node = await self._taint(node)
        self._taints(name, read(node).spec.taints)
        await self._mark_pods(node)

    async def _observe(self, name: str, node: Object) -> None:
        new = name not in self._last_heartbeat
        report = node_health.heartbeat(node)
        if new or self._reports.get(name) != report:
            self._reports[name] = report
            self._record_heartbeat(name)
        if new:
            message = f"Node {name} event: Registered Node {name} in Controller"
            await self._recorder.record(node, NORMAL, "RegisteredNode", message)

    async def _is_unresponsive(self, name: str) -> bool:
        """Returns whether the heartbeat is overdue; reads the lease, because watch events may be late."""
        if self.timers.now() - self._last_heartbeat[name] < self._limits.heartbeat_grace:
            return False
        try:
            lease = await self._api.get(LEASES, name, LEASE_NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
        else:
            self._renewed(name, version_of(lease))
        return self.timers.now() - self._last_heartbeat[name] >= self._limits.heartbeat_grace

    async def _mark_unknown(self, node: Object) -> Object:
        changed = node_health.with_unknown_conditions(node, self._now())
        if changed is None:
            return node
        name = node["metadata"]["name"]
        log.warning("node stopped sending heartbeats", extra={"node": name})
        self._reports[name] = node_health.heartbeat(changed)  # our own update is not a heartbeat
        return await self._api.replace(changed, subresource="status")

    def _observe_zone(self, node: Object) -> None:
        was_disrupted = self._zones.is_all_disrupted
        is_ready = node_health.is_ready(node)
        if self._zones.observe(node["metadata"]["name"], zone_disruption.zone_of(node), is_ready=is_ready):
            self._on_new_states(was_disrupted=was_disrupted)

    def _on_new_states(self, *, was_disrupted: bool) -> None:
        """The state of a zone changed: other nodes may be tainted now, or lose their taints.

        When the last disruption of all zones ends, heartbeats count from now on: they could not arrive before.
        """
        states = ", ".join(f"{zone or 'without zone'}: {state}" for zone, state in sorted(self._zones.states().items()))
        log.info("zone state changed", extra={"states": states})
        if was_disrupted and not self._zones.is_all_disrupted:
            self._reset_deadlines()
        for name in self._zones.not_ready():
            self._queue.add(name)

    async def _taint(self, node: Object) -> Object:
        changed = node_health.tainted(node, self._now(), evicts=self._may_evict(node))
        return node if changed is None else await self._api.replace(changed)

    def _may_evict(self, node: Object) -> bool:
        """Returns whether a failing node may have a taint that evicts its pods; one that must wait is looked at again.

        One that has such a taint keeps it, unless all zones are disrupted.
        """
        name = node["metadata"]["name"]
        if node_health.is_ready(node) or self._zones.is_all_disrupted:
            self.turns.cancel(name)
            return False
        if node_health.is_evicting(node):
            return True
        now = self.turns.now()
        wait = self._zones.wait(name, now)
        if wait:
            self.turns.set(name, now + wait)
        return wait == 0

    async def _mark_pods(self, node: Object) -> None:
        """Marks the pods once per transition to not ready: a running kubelet knows better how its pods are."""
        name = node["metadata"]["name"]
        if node_health.is_ready(node):
            self._not_ready.discard(name)
            return
        if name in self._not_ready or node_health.condition(node, node_health.READY) is None:
            return
        for pod in (await self._api.list(PODS, Scope(field_selector=f"spec.nodeName={name}"))).items:
            changed = node_health.not_ready_pod(pod, self._now())
            if changed is not None:
                await self._mark_pod(changed)
        await self._recorder.record(node, NORMAL, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        self._not_ready.add(name)

    async def _mark_pod(self, pod: Object) -> None:
        try:
            await self._api.replace(pod, subresource="status")
        except ApiError as error:
            if error.code != 404:
                raise
            return
        await self._recorder.record(pod, WARNING, "NodeNotReady", "Node is not ready")

    def _now(self) -> str:
        return rfc3339(self._clock.wall())
