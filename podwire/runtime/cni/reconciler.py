"""Sees to what nobody asks for: pods that a plugin failed to detach, garbage, whether the network takes pods.

| what | when |
|---|---|
| DEL of what is pending | at the start; when plugins or configurations change; with growing pauses until it is done |
| STATUS | at the start; when those change; when a plugin failed a pod; while it says no, with pauses and after DEL |
| GC | at the start and every hour; `podwire cni gc` does the same at any time |

It sleeps until one of these is due, or something happens.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from podwire.protocols.grpc_status import RpcError
from podwire.runtime.cni.network import CniNetwork

_log = logging.getLogger("podwire.runtime.cni")

HOUR = 3600.0
SHORTEST, LONGEST, LONGEST_UNWELL = 1.0, 300.0, 30.0
"""Seconds between two attempts: of anything, of DEL, of STATUS."""
FIRST_WORD = 2.0
"""Seconds that a start waits for what plugins say of themselves."""


def pause(attempts: int, longest: float = LONGEST) -> float:
    """Seconds to wait after so many attempts that failed."""
    return min(SHORTEST * 2.0 ** min(attempts - 1, 16), longest)


class Attempts(NamedTuple):
    failed: int
    due: float


Plan = Mapping[str, Attempts]


def planned(pending: Iterable[str], before: Plan, now: float) -> dict[str, Attempts]:
    """When each that is pending is tried again: one that is new has just failed for the first time."""
    return {each: before.get(each) or Attempts(1, now + pause(1)) for each in pending}


def again(attempts: Attempts, now: float, longest: float = LONGEST) -> Attempts:
    return Attempts(attempts.failed + 1, now + pause(attempts.failed + 1, longest))


_AT_ONCE = Attempts(0, 0.0)


class Reconciler:
    """One task beside a caller. `given_back` is told the ids of pods that were detached without anybody asking."""

    def __init__(self, caller: CniNetwork, given_back: Callable[[set[str]], Awaitable[None]]) -> None:
        self._caller = caller
        self._given_back = given_back
        self._plan: dict[str, Attempts] = {}
        self._status: Attempts | None = _AT_ONCE
        self._asked = 0.0
        self._changes = 0
        self._gc_due = 0.0
        self._wake = asyncio.Event()
        self._first_word = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        self._caller.on_failure = lambda: _tell(loop, self._troubled)
        self._plan = dict.fromkeys(self._caller.pending, _AT_ONCE)
        places = self._caller.places(self._changed)
        places.open()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run(), name="cni keeper")
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FIRST_WORD):
                        await self._first_word.wait()
                yield
            finally:
                places.close()
                self._caller.on_failure = _nothing
                task.cancel()

    def _changed(self) -> None:
        """Plugins or configurations are others now, so everything may go well now."""
        self._changes += 1
        self._plan = {id_: Attempts(each.failed, 0.0) for id_, each in self._plan.items()}
        self._status = _AT_ONCE
        self._wake.set()

    def _troubled(self) -> None:
        """A plugin failed a pod, and may tell why; or a pod went, and there may be room again."""
        soon = self._asked + SHORTEST
        failed, due = self._status or Attempts(0, soon)
        self._status = Attempts(failed, min(soon, due))
        self._wake.set()

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            self._plan = planned(self._caller.pending, self._plan, now())
            if self._status is not None and self._status.due <= now():
                await self._ask_status(self._status)
            self._first_word.set()
            await self._retry([each for each, attempts in self._plan.items() if attempts.due <= now()])
            if self._gc_due <= now():
                self._gc_due = now() + HOUR
                await self._collect()
            status = [] if self._status is None else [self._status.due]
            due = min([self._gc_due, *status, *(each.due for each in self._plan.values())])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()

    async def _ask_status(self, attempts: Attempts) -> None:
        self._status, self._asked = None, asyncio.get_running_loop().time()
        said = await self._said()
        if said and self._status is None:
            self._status = again(attempts, asyncio.get_running_loop().time(), LONGEST_UNWELL)
            if attempts.failed == 0:
                _log.warning("the network takes no pods", extra={"reason": said})

    async def _said(self) -> str:
        try:
            return await self._caller.query_status()
        except (RpcError, OSError) as error:
            return str(error)

    async def _retry(self, due: list[str]) -> None:
        if not due:
            return
        done = await asyncio.gather(*map(self._retried, due))
        if any(done):
            await self._given_back({id_ for id_, gone in zip(due, done, strict=True) if gone})

    async def _retried(self, id_: str) -> bool:
        changes = self._changes
        try:
            await self._caller.retry(id_)
        except (RpcError, OSError) as error:
            before = self._plan.get(id_, _AT_ONCE)
            anew = changes != self._changes  # while it was tried
            self._plan[id_] = before if anew else again(before, asyncio.get_running_loop().time())
            _log.debug("a pod is still not detached", extra={"id": id_, "reason": str(error)})
            return False
        self._plan.pop(id_, None)
        _log.info("a pod is detached at last", extra={"id": id_})
        return True

    async def _collect(self) -> None:
        try:
            failed = await self._caller.gc()
        except (RpcError, OSError) as error:
            _log.error("garbage is not collected", extra={"reason": str(error)})
            return
        for each in failed:
            _log.error("garbage is not wholly collected", extra={"reason": str(each)})


def _nothing() -> None:
    """Nobody listens any more."""


def _tell(loop: asyncio.AbstractEventLoop, hear: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
        loop.call_soon_threadsafe(hear)
