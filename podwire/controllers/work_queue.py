"""Work queue by key: deduplicated, one worker per key, retried with exponential back-off."""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.prometheus import Metrics
from podwire.tasks.backoff import Pauses

Key = TypeVar("Key", bound=Hashable)

INITIAL_BACKOFF, MAX_BACKOFF = 0.05, 30.0
BOUNDS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)


class NotYet(Exception):
    """No error, but the key has to be reconciled again soon."""


METRICS = Metrics()
"""The metrics of all queues of this process, by upstream's names: there is no other owner of all of them."""
_ADDS = METRICS.counter("workqueue_adds_total", "Keys that were enqueued", "name")
_DEPTH = METRICS.gauge("workqueue_depth", "Keys that wait", "name")
_RETRIES = METRICS.counter("workqueue_retries_total", "Keys that were enqueued again after a failure", "name")
_WAITED = METRICS.histograms("workqueue_queue_duration_seconds", "Time that a key waited", "name", bounds=BOUNDS)
_WORKED = METRICS.histograms("workqueue_work_duration_seconds", "Time to reconcile a key", "name", bounds=BOUNDS)


class WorkQueue(Generic[Key]):
    """Contains no key twice, so it is never longer than the number of objects."""

    def __init__(
        self,
        name: str,
        work: Callable[[Key], Awaitable[None]],
        *,
        workers: int = 4,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self._added: dict[Key, float] = {}
        """When each key was enqueued."""
        self._log = logging.getLogger(f"podwire.controllers.{name}")
        self._work = work
        self._workers = workers
        self._chance = chance
        self._pending_keys: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._in_progress: set[Key] = set()
        self._pauses: dict[Key, Pauses] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._filled = asyncio.Event()

    def add(self, key: Key) -> None:
        """Enqueues a key; while it is being worked on, once more afterwards."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if key not in self._queued:
            self._queued.add(key)
            self._added[key] = time.monotonic()
            self._pending_keys.append(key)
            _ADDS.inc(self.name)
            _DEPTH.set(len(self._queued), self.name)
            self._filled.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._workers):
                    workers.create_task(self._worker())
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _worker(self) -> None:
        while True:
            key = await self._take()
            began = time.monotonic()
            try:
                await self._work(key)
            except NotYet:
                self._back_off(key)
            except (ApiError, ClientError) as error:
                self._log.info("cannot reconcile object yet", extra={"key": str(key), "error": str(error)})
                self._back_off(key)
            except Exception:  # noqa: BLE001 - a fault in one object must not stop all others
                self._log.exception("reconciling an object failed", extra={"key": str(key)})
                self._back_off(key)
            else:
                self._pauses.pop(key, None)
            finally:
                _WORKED.observe(time.monotonic() - began, self.name)
                self._in_progress.discard(key)
                self._filled.set()

    async def _take(self) -> Key:
        while True:
            for _ in range(len(self._pending_keys)):
                key = self._pending_keys.popleft()
                if key not in self._in_progress:
                    self._queued.discard(key)
                    self._in_progress.add(key)
                    _DEPTH.set(len(self._queued), self.name)
                    _WAITED.observe(time.monotonic() - self._added.pop(key), self.name)
                    return key
                self._pending_keys.append(key)
            self._filled.clear()
            await self._filled.wait()

    def _back_off(self, key: Key) -> None:
        pauses = self._pauses.setdefault(key, Pauses(INITIAL_BACKOFF, MAX_BACKOFF, jitter=0.5, random=self._chance))
        pause = pauses.next()
        _RETRIES.inc(self.name)
        if key not in self._queued:
            self._timers[key] = asyncio.get_running_loop().call_later(pause, self.add, key)
