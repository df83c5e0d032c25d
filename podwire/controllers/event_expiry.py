"""Events are told for an hour, then forgotten."""

import asyncio
import heapq
from typing import Any

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import EVENTS
from podwire.controllers.metadata import Seen, resource_of
from podwire.controllers.ports import Api
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects.times import parse
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

TTL = 3600.0


def last_told(event: Object) -> float:
    """When the event was last seen to happen, in seconds since the epoch; it says so in up to five places."""
    series: dict[str, Any] = event.get("series") or {}
    texts = [
        event["metadata"].get("creationTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        event.get("lastTimestamp"),
        series.get("lastObservedTime"),
    ]
    return max((parse(each) for each in texts if each), default=0.0)


class EventExpiry:
    """Looks at each event when it would be too old if nobody had repeated it."""

    def __init__(self, api: Api, graph: Graph, clock: Clock, ttl: float = TTL) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._ttl = ttl
        self._due: list[tuple[float, str]] = []
        self._sooner = asyncio.Event()
        self._queue: WorkQueue[str] = WorkQueue("events", self._attend, workers=2)

    def saw(self, before: Seen | None, now: Seen | None) -> None:
        if now is not None and before is None and now.resource == resource_of(EVENTS):
            created = now.metadata.creation_timestamp
            self._look_at(now.uid, (parse(created) if created else self._clock.wall()) + self._ttl)

    def completed(self) -> None:
        """Nothing waits for this: an event's age does not depend on others."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self._wake())

    def _look_at(self, uid: str, when: float) -> None:
        heapq.heappush(self._due, (when, uid))
        if self._due[0][1] == uid:
            self._sooner.set()

    async def _wake(self) -> None:
        while True:
            self._sooner.clear()
            wait = self._due[0][0] - self._clock.wall() if self._due else None
            if wait is not None and wait <= 0:
                self._queue.add(heapq.heappop(self._due)[1])
                continue
            try:
                async with asyncio.timeout(wait):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    async def _attend(self, uid: str) -> None:
        seen = self._graph.node(uid)
        if seen is None:
            return
        try:
            event = await self._api.get(EVENTS, seen.name, seen.namespace)
            end = last_told(event) + self._ttl
            if end > self._clock.wall():
                self._look_at(uid, end)
            else:
                await self._api.delete(EVENTS, seen.name, seen.namespace, uid=uid)
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or another of the same name
                raise
