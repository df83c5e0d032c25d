"""Reconciles the pod network without a request: retries DEL, calls GC and STATUS.

| action | when |
|---|---|
| DEL of pending pods | at the start; when plugins or configurations change; with back-off until it succeeds |
| STATUS | at the start; when those change; after a plugin failed a pod; while it fails, with back-off and after a DEL |
| GC | at the start and every hour; within a minute after STATUS began to fail; by `podwire cni gc` at any time |

GC repairs what may be the cause of the failed STATUS: a pool that is full of damaged leases.

The task sleeps until one of these is due, or an event wakes it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from podwire.protocols.grpc_status import RpcError
from podwire.runtime.cni.limits import CniLimits
from podwire.runtime.cni.network import CniNetwork

_log = logging.getLogger("podwire.runtime.cni")


class Attempts(NamedTuple):
    """Failed attempts of an action, and when the next one is due."""

    failed: int
    due: float


_AT_ONCE = Attempts(0, 0.0)


def plan_retries(
    pending: Iterable[str], before: Mapping[str, Attempts], now: float, limits: CniLimits
) -> dict[str, Attempts]:
    """Returns when the DEL of each pending pod is retried; one that is new has just failed for the first time."""
    first = Attempts(1, now + _pause(1, limits, limits.longest_del_pause))
    return {id_: before.get(id_) or first for id_ in pending}


def after_failure(attempts: Attempts, now: float, limits: CniLimits, longest: float) -> Attempts:
    """Returns the next attempt after one that failed now."""
    return Attempts(attempts.failed + 1, now + _pause(attempts.failed + 1, limits, longest))


def _pause(failed: int, limits: CniLimits, longest: float) -> float:
    return min(limits.first_pause * 2.0 ** min(failed - 1, 16), longest)


class Reconciler:
    """One task for a CniNetwork. `on_detached` gets the ids of pods whose retried DEL succeeded."""

    def __init__(self, network: CniNetwork, on_detached: Callable[[set[str]], Awaitable[None]]) -> None:
        self._network = network
        self._limits = network.limits
        self._on_detached = on_detached
        self._retries: dict[str, Attempts] = {}
        self._status: Attempts | None = _AT_ONCE
        """When STATUS is called next; None when nothing calls for it."""
        self._status_called = 0.0
        self._changes = 0
        self._gc_due = self._gc_allowed = 0.0
        self._wake = asyncio.Event()
        self._first_status = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the task. Waits a moment for the first STATUS, so that the runtime starts with the true readiness."""
        loop = asyncio.get_running_loop()

        def on_failure() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._after_pod_failure)

        self._network.on_failure = on_failure
        self._retries = dict.fromkeys(self._network.pending, _AT_ONCE)
        configs = self._network.watch_configs(self._on_config_change)
        configs.open()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run(), name="cni reconciler")
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.first_status):
                        await self._first_status.wait()
                yield
            finally:
                configs.close()
                self._network.on_failure = lambda: None
                task.cancel()

    def _on_config_change(self) -> None:
        """Retries everything at once: it may succeed with the new plugins or configurations."""
        self._changes += 1
        self._retries = {id_: Attempts(attempts.failed, 0.0) for id_, attempts in self._retries.items()}
        self._status = _AT_ONCE
        self._wake.set()

    def _after_pod_failure(self) -> None:
        """Calls STATUS soon: a plugin failed a pod, and STATUS may say why; or a pod went, and STATUS may recover."""
        soon = self._status_called + self._limits.first_pause
        failed, due = self._status or Attempts(0, soon)
        self._status = Attempts(failed, min(soon, due))
        self._wake.set()

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            self._retries = plan_retries(self._network.pending, self._retries, now(), self._limits)
            if self._status is not None and self._status.due <= now():
                await self._query_status(self._status)
            self._first_status.set()
            await self._retry([id_ for id_, attempts in self._retries.items() if attempts.due <= now()])
            if self._gc_due <= now():
                self._gc_due = now() + self._limits.gc_interval
                self._gc_allowed = now() + self._limits.gc_pause
                await self._collect_garbage()
            status = [] if self._status is None else [self._status.due]
            due = min([self._gc_due, *status, *(attempts.due for attempts in self._retries.values())])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()

    async def _query_status(self, attempts: Attempts) -> None:
        self._status, self._status_called = None, asyncio.get_running_loop().time()
        try:
            error_text = await self._network.query_status()
        except (RpcError, OSError) as error:
            error_text = str(error)
        if error_text and self._status is None:
            now = asyncio.get_running_loop().time()
            self._status = after_failure(attempts, now, self._limits, self._limits.longest_status_pause)
            if attempts.failed == 0:
                _log.warning("network does not accept pods", extra={"error": error_text})
                self._gc_due = min(self._gc_due, self._gc_allowed)

    async def _retry(self, due: list[str]) -> None:
        if not due:
            return
        succeeded = await asyncio.gather(*map(self._retry_detach, due))
        if any(succeeded):
            await self._on_detached({id_ for id_, ok in zip(due, succeeded, strict=True) if ok})

    async def _retry_detach(self, id_: str) -> bool:
        changes = self._changes
        try:
            await self._network.retry_detach(id_)
        except (RpcError, OSError) as error:
            attempts = self._retries.get(id_, _AT_ONCE)
            if changes == self._changes:  # else the configuration changed meanwhile: retry at once
                now = asyncio.get_running_loop().time()
                attempts = after_failure(attempts, now, self._limits, self._limits.longest_del_pause)
            self._retries[id_] = attempts
            _log.debug("retried DEL of pod failed", extra={"id": id_, "error": str(error)})
            return False
        self._retries.pop(id_, None)
        _log.info("retried DEL of pod succeeded", extra={"id": id_})
        return True

    async def _collect_garbage(self) -> None:
        try:
            failures = await self._network.gc()
        except (RpcError, OSError) as error:
            _log.error("cannot collect garbage of network", extra={"error": str(error)})
            return
        for failure in failures:
            _log.error("plugin failed to collect garbage", extra={"error": str(failure)})
