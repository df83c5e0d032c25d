"""Deletes events an hour after they were last seen."""

import asyncio
import heapq
from typing import Any, ClassVar

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import EVENTS
from podwire.controllers.limits import DEFAULT
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects.times import parse
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object


def last_seen(event: Object) -> float:
    """Returns when the event last happened, in seconds since the epoch; up to five fields say so."""
    series: dict[str, Any] = event.get("series") or {}
    texts = [
        event["metadata"].get("creationTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        event.get("lastTimestamp"),
        series.get("lastObservedTime"),
    ]
    return max((parse(text) for text in texts if text), default=0.0)


class EventExpiry:
    """Checks each event when it would expire if it had not been repeated."""

    resources: ClassVar = frozenset(map(resource_of, (EVENTS,)))

    def __init__(self, api: Client, graph: Graph, clock: Clock, ttl: float = DEFAULT.event_ttl) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._ttl = ttl
        self._evictions: list[tuple[float, str]] = []
        self._sooner = asyncio.Event()
        self._queue: WorkQueue[str] = WorkQueue("events", self._reconcile, workers=2)

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        if now is not None and before is None and now.resource == resource_of(EVENTS):
            created = now.metadata.creation_timestamp
            self._enqueue(now.uid, (parse(created) if created else self._clock.wall()) + self._ttl)

    def on_synced(self) -> None:
        """Nothing to do: an event's age does not depend on other objects."""

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self._run_timers())

    def _enqueue(self, uid: str, when: float) -> None:
        heapq.heappush(self._evictions, (when, uid))
        if self._evictions[0][1] == uid:
            self._sooner.set()

    async def _run_timers(self) -> None:
        while True:
            self._sooner.clear()
            wait = self._evictions[0][0] - self._clock.wall() if self._evictions else None
            if wait is not None and wait <= 0:
                self._queue.add(heapq.heappop(self._evictions)[1])
                continue
            try:
                async with asyncio.timeout(wait):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    async def _reconcile(self, uid: str) -> None:
        seen = self._graph.node(uid)
        if seen is None:
            return
        try:
            event = await self._api.get(EVENTS, seen.name, seen.namespace)
            end = last_seen(event) + self._ttl
            if end > self._clock.wall():
                self._enqueue(uid, end)
            else:
                await self._api.delete(EVENTS, seen.name, seen.namespace, uid=uid)
        except ApiError as error:
            if error.code not in (404, 409):  # deleted, or replaced by another of the same name
                raise
