"""Work that outlives the call which began it."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Shielded:
    """Keeps the tasks that nobody may cut, until they end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of the work, which goes on when the one who waits here is cancelled."""
        task = asyncio.create_task(work, name=getattr(work, "__qualname__", "shielded work"))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        finally:
            if not task.done():
                task.add_done_callback(_tell)

    async def finish(self, grace: float) -> None:
        """Wait up to `grace` seconds for what is still going on, then cancel it, and say so."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace)
        for each in late:
            log.warning("shielded work is cut short", extra={"work": each.get_name(), "after": grace})
            each.cancel()
        await asyncio.gather(*late, return_exceptions=True)


def _tell(task: asyncio.Task[Any]) -> None:
    """Nobody waits any more: a failure is told here or nowhere."""
    if not task.cancelled() and (error := task.exception()):
        log.error("failed after its caller gave up", exc_info=error, extra={"work": task.get_name()})
