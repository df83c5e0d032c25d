"""Work that runs to completion although the task that waits for it is cancelled.

Half of such work would leave something without an owner: a call that made a device, a thread that writes a file.

| when the caller is cancelled    | `Uncancelled.run`                         | `to_completion`                        |
|---------------------------------|-------------------------------------------|----------------------------------------|
| the caller                      | leaves at once (CancelledError)           | leaves when the work has ended         |
| the work                        | goes on; `drain` waits for it at shutdown | has ended: a lock can be held for it   |
| an error of the work after that | is logged                                 | is logged                              |
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
Result = TypeVar("Result")


class Uncancelled:
    """Owns tasks that must not be cancelled before they end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of the work, which goes on when the caller is cancelled."""
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        finally:
            if not task.done():
                task.add_done_callback(_log_failure)

    def start(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Begin work that several callers may wait for, each with `result`."""
        task = asyncio.create_task(work, name=getattr(work, "__qualname__", "uncancelled work"))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def result(self, task: "asyncio.Task[Result]") -> Result:
        """Return the result of work that was begun by `start`; it goes on when this caller is cancelled."""
        return await asyncio.shield(task)

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for unfinished work, then cancel it and log that."""
        if not self._tasks:
            return
        _, unfinished = await asyncio.wait(self._tasks, timeout=grace)
        for task in unfinished:
            log.warning("cancelled unfinished work at shutdown", extra={"work": task.get_name(), "grace": grace})
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


async def to_completion(work: Awaitable[Result]) -> Result:
    """Return the result of the work; a caller that is cancelled waits for its end first, then is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:  # once is enough; the caller leaves below
                continue
        _log_failure(task)
        raise


async def thread_to_completion(work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Call a blocking function in a worker thread. A thread cannot be stopped, so a cancelled caller waits for it."""
    return await to_completion(asyncio.to_thread(work, *args, **kwargs))


def _log_failure(task: "asyncio.Future[Any]") -> None:
    """Nobody waits for the result: an error is logged here or nowhere."""
    if not task.cancelled() and (error := task.exception()):
        name = task.get_name() if isinstance(task, asyncio.Task) else "uncancelled work"
        log.error("work failed after its caller was cancelled", exc_info=error, extra={"work": name})
