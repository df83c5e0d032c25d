"""Reports why pods are pending: a few writes at a time, the newest reason of each pod only, behind the bindings.

Thousands of pending pods are decided on within seconds, each with a reason that may be another after the next decision.
A reason that waits is replaced by the next one of its pod; it is not written while the pod is about to be decided on
again, nor when the pod already says so. While bindings are in flight, one report at a time is written beside them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from podwire.scheduler.pod_conditions import PendingReason, PodConditions
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.queue import Limits, PodQueue

log = logging.getLogger("podwire.scheduler")


class Reports:
    def __init__(self, conditions: PodConditions, queue: PodQueue, limits: Limits) -> None:
        self._conditions = conditions
        self._queue = queue
        self._limits = limits
        self._waiting: dict[str, tuple[PodInfo, PendingReason]] = {}
        """By uid of the pod, the oldest first."""
        self._writing: set[str] = set()
        self._filled = asyncio.Event()
        self._bindings = 0
        self._unhindered = asyncio.Event()
        self._unhindered.set()

    def put(self, info: PodInfo, pending_reason: PendingReason) -> None:
        """Reports a reason, instead of an earlier one that still waits."""
        self._waiting.pop(info.pod.uid, None)
        if self._conditions.needs_write(info.pod, pending_reason):
            self._waiting[info.pod.uid] = (info, pending_reason)
            self._filled.set()

    def forget(self, uid: str) -> None:
        """Drops what waits for a pod that is not pending any more."""
        self._waiting.pop(uid, None)
        self._conditions.forget(uid)

    @contextlib.contextmanager
    def behind(self) -> Iterator[None]:
        """A binding is in flight: all reports but one at a time wait for its end."""
        self._bindings += 1
        self._unhindered.clear()
        try:
            yield
        finally:
            self._bindings -= 1
            if not self._bindings:
                self._unhindered.set()

    async def run(self) -> None:
        """Writes reports until cancelled."""
        async with asyncio.TaskGroup() as workers:
            workers.create_task(self._work(beside_bindings=True))
            for _ in range(self._limits.concurrent_reports - 1):
                workers.create_task(self._work(beside_bindings=False))

    async def _work(self, *, beside_bindings: bool) -> None:
        while True:
            await self._filled.wait()
            if not beside_bindings:
                await self._unhindered.wait()
            uid = next((uid for uid in self._waiting if uid not in self._writing), None)
            if uid is None:  # the worker of a report also writes the next one of its pod
                self._filled.clear()
                continue
            self._writing.add(uid)
            try:
                while (row := self._waiting.pop(uid, None)) is not None:
                    await self._write(*row)
            except Exception:  # an invalid answer ends this report only
                log.exception("reporting a pending pod failed", extra={"pod": uid})
            finally:
                self._writing.discard(uid)

    async def _write(self, info: PodInfo, pending_reason: PendingReason) -> None:
        uid = info.pod.uid
        newest = self._queue.info(uid) or info
        if self._queue.is_about_to_be_decided(uid) or not self._conditions.needs_write(newest.pod, pending_reason):
            return
        if not await self._conditions.write(newest.pod, pending_reason) and self._queue.is_unschedulable(uid):
            self._queue.back_off(uid)


class UnschedulableLog:
    """Logs the first unschedulable pods of each period, and how many more there were at its end."""

    def __init__(self, single: int = 20, period: float = 10.0) -> None:
        self._single = single
        self._period = period
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, pod: str, message: str) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._period, self._summarize)
        self._count += 1
        if self._count <= self._single:
            log.info("pod is unschedulable", extra={"pod": pod, "error": message})

    def close(self) -> None:
        """Cancels the timer, after a last summary."""
        if self._timer is not None:
            self._timer.cancel()
            self._summarize()

    def _summarize(self) -> None:
        if self._count > self._single:
            more = self._count - self._single
            log.info("more pods are unschedulable", extra={"decisions": more, "seconds": self._period})
        self._count, self._timer = 0, None
